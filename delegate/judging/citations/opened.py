"""Finds out from the receipts which sources a child opened, and what came back.

A web page was opened by `fetch_url`, or by any other tool that was called with its URL, or whose result names it, such
as a search. A file was opened by a tool that reads, called with its path. What a child can write itself is no source:
its files, its thoughts, what its commands print, and what a model answers to its search.

A search doesn't open what it finds: of each page, there is only the text that the search returned of it.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from yarl import URL

from delegate._util.redaction import redactor
from delegate.judging.citations.compare import Text
from delegate.judging.proof.calls import Calls, failed, recorded
from delegate.judging.proof.values import leaves
from delegate.judging.submission import Submission
from delegate.records.recorder import canonical, is_cut
from delegate.types import Receipt
from delegate.types.ports import SEARCH_WEB

_FETCH = "fetch_url"
_ANSWER = re.compile(r"\A(\S+) \((\d{3}), [^)\n]*\)\n\n")
"""The first line of what `fetch_url` returns, which the runtime wrote: where it ended, and the status."""
_OWN_TEXT = ("think", "list_files", "search_files")
"""Tools of the built-in child whose results are no source, though they only look."""
_IN_TEXT = re.compile(r"https?://[^\s<>\"'()\[\]{}|\\^`]+", re.IGNORECASE)
MAX_NAMED = 500
"""How many URLs of one result are looked up with the text next to them."""
_SEARCHED = re.compile(r"\Asearched by \S+\n\n")
"""Above what an MCP server found."""
_ECHO_CHARS = 12
"""So long an argument isn't a source where the result repeats it."""


@dataclass(frozen=True, slots=True)
class Source:
    """What came back from a URL or a file when it was opened last, by one call or by one for each part of it."""

    receipt: int
    text: Text
    is_cut: bool = False
    """Whether the record has less than what came back."""
    answered_by: str | None = None
    """The host where it ended, if that is another one than was asked."""
    hosts: tuple[str, ...] = ()
    """The hosts that were asked and that answered. None for a file."""
    earlier: Text | None = None
    """What came back before that, if it was something else."""


@dataclass(slots=True)
class _Openings:
    """The calls that opened one source, by what they asked for: a later one replaces what an equal one returned."""

    parts: dict[str, tuple[Receipt, str]] = field(default_factory=dict[str, tuple[Receipt, str]])
    replaced: list[str] = field(default_factory=list[str])
    ended: str = ""
    """The key of the page where it ended."""

    def add(self, asked: str, receipt: Receipt, text: str, ended: str) -> None:
        if asked in self.parts and self.parts[asked][1] != text:
            self.replaced.append(self.parts[asked][1])
        self.parts[asked] = (receipt, text)
        self.ended = ended or self.ended


class Opened:
    """The sources that the child of a submission opened."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission
        self._by_key: dict[str, _Openings] = {}
        self._failed: dict[str, str] = {}
        """Why a URL wasn't opened though it was asked for."""
        self._sources: dict[str, Source] = {}
        self._written: list[str] = []
        """What the child wrote so far, into files, commands and arguments."""
        calls = recorded(submission)
        for receipt in submission.run.receipts:
            self._read(receipt, calls)

    @cached_property
    def own_files(self) -> frozenset[str]:
        """The files that the child made or changed itself."""
        if self._submission.by_child:
            return frozenset(artifact.path for artifact in self._submission.run.artifacts)
        # Of work that exists, all files are listed: its own are those that a call named together with a text.
        return frozenset(
            self._path(text)
            for texts in (leaves(receipt.args) for receipt in self._submission.run.receipts)
            if any(len(text) > _ECHO_CHARS and not self._exists(text) for text in texts)
            for text in texts
            if self._exists(text)
        )

    @property
    def files(self) -> list[str]:
        """The paths of the files that were read, and are not the child's own."""
        return [key for key in self._by_key if not key.startswith("//") and key not in self.own_files]

    def is_own(self, target: str) -> bool:
        """Whether a target is a file of the child itself, which is no source."""
        return not _is_url(target) and self._path(target) in self.own_files

    def find(self, target: str) -> Source | str:
        """The source that a citation names, or why it wasn't opened."""
        keys = _url_keys(target) if _is_url(target) else [self._path(target)]
        for key in keys:
            if openings := self._by_key.get(key):
                if key not in self._sources:
                    self._sources[key] = self._source(key, openings)
                return self._sources[key]
        why = next((self._failed[key] for key in keys if key in self._failed), None)
        return why or "no recorded call opened it"

    def _source(self, key: str, openings: _Openings) -> Source:
        parts, text = list(openings.parts.values()), "\n".join(text for _, text in openings.parts.values())
        host = _host(key)
        ended = _host(openings.ended) if openings.ended else host
        return Source(
            receipt=parts[-1][0].n,
            text=Text(text),
            is_cut=any(
                is_cut(receipt) or receipt.output_bytes > len(receipt.whole_output.encode(errors="replace"))
                for receipt, _ in parts
            ),
            answered_by=ended if ended != host else None,
            hosts=tuple(dict.fromkeys((host, ended))) if host else (),
            earlier=Text("\n".join(openings.replaced)) if openings.replaced else None,
        )

    def _path(self, path: str) -> str:
        """A path as it is listed: relative to the workspace."""
        folder = self._submission.folder
        if folder is not None and os.path.isabs(path):
            path = os.path.relpath(path, folder.root)
        return os.path.normpath(re.sub(r":\d+(?:-\d+)?\Z", "", path))

    def _read(self, receipt: Receipt, calls: Calls) -> None:
        texts = [text for text in leaves(receipt.args) if text]
        names = receipt.tool != SEARCH_WEB  # what a search looks for is neither a page nor a file
        asked = {key: text for text in texts if names and _is_url(text) for key in _url_keys(text)[:1]}
        effect = calls.effect(receipt)
        is_source = effect not in ("files", "commands") and receipt.tool not in _OWN_TEXT
        if is_source and receipt.status == "ok" and (receipt.tool == _FETCH or not failed(receipt)):
            self._note(receipt, texts, asked)
        elif is_source:
            first = redactor.beginning(receipt.output.strip().partition("\n")[0], 200)
            self._failed |= dict.fromkeys(asked, f"call {receipt.n} failed: {first or receipt.status}")
        self._written += [text for text in texts if text not in asked.values()]

    def _note(self, receipt: Receipt, texts: Sequence[str], asked: Mapping[str, str]) -> None:
        output, how, ended = receipt.whole_output, f"{receipt.tool} {canonical(receipt.args)}", ""
        answer = _ANSWER.match(output) if receipt.tool == _FETCH else None
        if answer and not answer[2].startswith("2"):
            self._failed |= dict.fromkeys(asked, f"call {receipt.n}: it answered {answer[2]}")
            return
        if answer:
            # Asked for in another way, it is the same page: what came last is what it says.
            output, how, ended = output[answer.end() :], _FETCH, _url_key(answer[1])
            own = [value for url in (*filter(_is_url, texts), answer[1]) for value in _query_values(url)]
            keys = [*asked, ended]
        else:
            own = [text for text in texts if text not in asked.values()]
            # The path of a file, which may be gone if it was the child's own.
            files = [text for text in texts if self._path(text) in self.own_files or self._exists(text)]
            keys = [*asked, *(self._path(text) for text in files if receipt.tool != SEARCH_WEB)]
        for text in own:
            output = output.replace(text, " ") if len(text) > _ECHO_CHARS else output
        found = [(key, output) for key in dict.fromkeys(keys)] or self._named(output, receipt)
        for key, text in found:
            self._by_key.setdefault(key, _Openings()).add(how, receipt, text, ended)

    def _exists(self, text: str) -> bool:
        folder = self._submission.folder
        if folder is None or "\n" in text or len(text) > 1_000:
            return False
        path = self._path(text)
        return path[:2] != ".." and "\0" not in path and os.path.isfile(folder.root / path)

    def _named(self, output: str, receipt: Receipt) -> Iterator[tuple[str, str]]:
        """The URLs that a result names, each with the text next to it. One that the child wrote before is an echo."""
        is_search = receipt.tool == SEARCH_WEB
        quoted = _quoted(receipt.whole_output) if is_search else None
        for url, text in _beside(_SEARCHED.sub("", output)) if quoted is None else quoted:
            if is_search and not re.search(r"\w", text.replace(url, "")):
                self._failed[_url_keys(url)[0]] = f"call {receipt.n} found it, but nothing opened it"
            elif quoted is not None or not any(url in written for written in self._written):
                yield _url_keys(url)[0], text


def is_of(host: str, allowed: Sequence[str]) -> bool:
    """Whether a host, with its port if it isn't the usual one, is one of these or a subdomain of one."""
    name = host.rpartition(":")[0] if re.search(r":\d+\Z", host) else host
    return any(host == one or name == one or name.endswith(f".{one}") for one in allowed)


def _is_url(text: str) -> bool:
    return text[:8].lower().startswith(("http://", "https://")) and len(text) <= 4_000 and not re.search(r"\s", text)


def _url_keys(text: str) -> list[str]:
    """What a URL is known by. Where a sentence goes on right behind it, as in Japanese, also its beginning."""
    beginning = re.match(r"[\x21-\x7e]+", text)
    return list(dict.fromkeys(filter(None, (_url_key(text), _url_key(beginning[0]) if beginning else ""))))


def _url_key(text: str) -> str:
    """Without scheme, fragment, a slash at the end, and the file that answers for its folder (`/docs/index.html`)."""
    try:
        url = URL(text)
    except ValueError:
        return f"//{text}"
    port = "" if url.is_default_port() or url.port is None else f":{url.port}"
    query = f"?{url.raw_query_string}" if url.raw_query_string else ""
    path = re.sub(r"/(?:index\.\w{1,5})?\Z", "", url.raw_path)
    return f"//{(url.raw_host or '').lower()}{port}{path.rstrip('/')}{query}"


def _query_values(url: str) -> list[str]:
    with suppress(ValueError):
        return list(URL(url).query.values())
    return []


def _host(key: str) -> str:
    return re.split(r"[/?]", key[2:], maxsplit=1)[0] if key.startswith("//") else ""


def _beside(output: str) -> Iterator[tuple[str, str]]:
    """Each URL in a result with the smallest JSON object, or else the paragraph, that names it."""
    try:
        value = json.loads(output) if output.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, (dict, list)):
        yield from list(_objects_with_urls(value))[:MAX_NAMED]
        return
    found: list[tuple[str, str]] = []
    for paragraph in re.split(r"\n\s*\n", output):
        found += [(url[0].rstrip(".,;:!?"), paragraph) for url in _IN_TEXT.finditer(paragraph)]
        if len(found) > MAX_NAMED:
            return
    only = {url for url, _ in found}
    yield from ((url, output if len(only) == 1 else paragraph) for url, paragraph in found)


def _quoted(output: str) -> list[tuple[str, str]] | None:
    """What a provider's search quotes of each page that it found; None if something else searched.

    Each page is a line of JSON, above what the model answered.
    """
    head, *lines = output.split("\n")
    if not head.startswith('{"searched_by":'):
        return None
    quotes: dict[str, list[str]] = {}
    for line in lines:
        try:
            source = json.loads(line)
        except ValueError:  # the pages end here, or the record has no more of them
            break
        quotes.setdefault(source["url"], []).append(source.get("quote", ""))
    return [(url, "\n".join(texts)) for url, texts in quotes.items()]


def _objects_with_urls(value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    if depth > 100:
        return
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _objects_with_urls(item, depth + 1)
    elif isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for part in fields.values():
            if isinstance(part, str) and _is_url(part):
                yield part, "\n".join(leaves(fields))
            else:
                yield from _objects_with_urls(part, depth + 1)
