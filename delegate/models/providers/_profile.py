"""What was learned of a model at an endpoint, and the file that keeps it for the next process.

Servers of one API differ in what they accept, and only their refusals tell. Each refusal is a call, so what it teaches
is kept for `KEPT_SECONDS`; then the server is tried anew, since it may have been upgraded.
"""

import hashlib
import json
import os
import threading
import time
from asyncio import to_thread
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, Self, cast, get_args

from delegate._util import forking
from delegate.models.providers._endpoint import Endpoint
from delegate.types import EFFORTS

FILE = "endpoints.json"
"""In the folder `home`."""
VERSION = 1
KEPT_SECONDS = 7 * 86_400.0
SKEW_SECONDS = 3_600.0
"""By which another process's clock may be ahead."""
MAX_PROFILES = 200
"""The oldest ones are dropped first."""
MAX_BYTES = 1 << 20
"""A larger file isn't read."""

Replies = Literal["json_schema", "json_object", "prompt"]
"""How a server is told which JSON to reply with: by a schema, in words and by its JSON mode, or in words alone."""
Api = Literal["chat", "responses"]
TokenLimit = Literal["max_tokens", "max_completion_tokens"]
DEFAULT_EFFORT = "default"
"""Stands in `Profile.efforts` for a model that reasons unless it is told not to, by `none`."""


@dataclass(frozen=True, slots=True)
class Profile:
    """How a model at an endpoint is asked, and how it replies. None is what isn't known."""

    replies: Replies | None = None
    """None: by a schema, which wasn't refused so far."""
    efforts: tuple[str, ...] | None = None
    """The reasoning efforts that may be sent; empty if requests can't have one. None: those of the protocol."""
    limit: TokenLimit | None = None
    """The name of the token limit in Chat Completions. Many local servers only know the older one, which OpenAI's
    reasoning models reject, also behind a proxy."""
    streams: bool | None = None
    """Whether it sends replies as server-sent events."""
    finish_reason: bool | None = None
    """Whether its replies say why they ended."""
    api: Api | None = None
    """Which of OpenAI's APIs it needs."""
    caching: bool | None = None
    """Whether it takes fields for the prompt cache."""
    carries_reasoning: bool | None = None
    """Whether it takes back the reasoning that it sent with a chat message. A few servers refuse it."""
    encrypted_reasoning: bool | None = None
    """Whether the Responses API may be asked for the reasoning. Models without reasoning reject that."""

    def asked_as(self, other: Self) -> bool:
        """Whether requests are the same with both profiles, whatever is known of replies."""
        one, two = (
            replace(
                profile,
                replies=profile.replies or "json_schema",
                streams=profile.streams is not False,
                finish_reason=None,
            )
            for profile in (self, other)
        )
        return one == two

    def learned(self) -> dict[str, Any]:
        """The fields that are known."""
        known = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in known if value is not None}


_WORDS = {"replies": get_args(Replies), "limit": get_args(TokenLimit), "api": get_args(Api)}
_EFFORTS = {*EFFORTS, DEFAULT_EFFORT}


def _valid(name: str, value: object) -> bool:
    """Whether a field of a stored profile can be used. Those of a later version of this package may not be."""
    if name in _WORDS:
        return value in _WORDS[name]
    if name == "efforts":
        return isinstance(value, list) and all(effort in _EFFORTS for effort in cast("list[Any]", value))
    return isinstance(value, bool) and name in Profile.__dataclass_fields__


@dataclass(frozen=True, slots=True)
class Entry:
    """A profile with the time of its first lesson, in seconds since the epoch."""

    profile: Profile
    since: float
    host: str
    model: str
    stored: bool = False
    """Whether it comes from the file, and no call has confirmed it yet."""

    def is_current(self, now: float) -> bool:
        """Whether it is neither too old nor from a clock that is wrong."""
        return -SKEW_SECONDS <= now - self.since < KEPT_SECONDS

    def over(self, other: Self) -> Self:
        """Return this entry, with what only the other one has."""
        return replace(self, profile=replace(other.profile, **self.profile.learned()))

    def document(self, key: str) -> dict[str, Any]:
        """The entry as JSON data."""
        head = {"key": key, "host": self.host, "model": self.model, "since": self.since}
        return {**head, "learned": self.profile.learned()}


class ProfileStore:
    """The profiles of all endpoints, in memory and, with a `path`, in a file. Safe to use from several threads.

    The file is read when the first profile is needed. A damaged file is ignored, and what can't be written is only
    remembered: nothing fails because of it. Several processes may write it: each adds what it has learned to what is
    there. It contains no address, key, or text of a server.
    """

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] | None = None
        self._unsaved: set[str] = set()
        forking.watch(self)

    def after_fork(self) -> None:
        """Replace the lock, which a thread of the parent process may hold."""
        self._lock = threading.Lock()

    def at(self, endpoint: Endpoint) -> "EndpointProfiles":
        """The profiles of the models at this endpoint."""
        return EndpointProfiles(self, endpoint)

    def entry(self, key: str) -> Entry | None:
        """The entry with this key, unless there is none or it is too old."""
        if self._entries is None:
            with self._lock:
                if self._entries is None:
                    self._entries = self._read()
        entry = self._entries.get(key)
        return entry if entry is not None and entry.is_current(self._clock()) else None

    def put(self, key: str, entry: Entry) -> None:
        """Remember an entry until it is saved."""
        self.entry(key)
        with self._lock:
            assert self._entries is not None
            self._entries[key] = entry
            self._unsaved.add(key)

    def drop(self, key: str) -> None:
        """Forget an entry, here and in the file with the next one that is saved."""
        self.entry(key)
        with self._lock:
            if self._entries is not None and self._entries.pop(key, None):
                self._unsaved.add(key)

    def now(self) -> float:
        """The time in seconds since the epoch."""
        return self._clock()

    def is_unsaved(self, key: str) -> bool:
        """Whether the file lacks what was learned here."""
        return key in self._unsaved

    def save(self) -> None:
        """Write what was learned. Blocks for a moment."""
        with self._lock:
            changed, self._unsaved = self._unsaved, set()
            if self._path is None or self._entries is None:
                return
            merged = self._read()
            for key in changed:
                ours, theirs = self._entries.get(key), merged.pop(key, None)
                if ours is not None:
                    merged[key] = ours if theirs is None else ours.over(theirs)
            newest = sorted(merged.items(), key=lambda item: item[1].since)[-MAX_PROFILES:]
            _write(self._path, [entry.document(key) for key, entry in newest])

    def _read(self) -> dict[str, Entry]:
        """What the file has, as far as it can be used and isn't too old."""
        now, entries = self._clock(), {} if self._path is None else _read(self._path)
        return {key: entry for key, entry in entries.items() if entry.is_current(now)}


def _read(path: Path) -> dict[str, Entry]:
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return {}
        document = json.loads(path.read_bytes())
        if document["version"] != VERSION:
            return {}
        return dict(filter(None, map(_entry, document["profiles"][-MAX_PROFILES:])))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}


def _entry(item: Any) -> tuple[str, Entry] | None:
    """One entry of the file; None if it is damaged."""
    try:
        learned = cast("Mapping[str, Any]", item["learned"])
        usable = {name: value for name, value in learned.items() if _valid(name, value)}
        if "efforts" in usable:
            usable["efforts"] = tuple(usable["efforts"])
        host, model = str(item["host"]), str(item["model"])
        return str(item["key"]), Entry(Profile(**usable), float(item["since"]), host, model, stored=True)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _write(path: Path, profiles: list[dict[str, Any]]) -> None:
    """Replace the file. What other processes read is always a whole one."""
    new = path.with_name(f".{path.name}.{os.getpid()}.{token_hex(4)}")
    data = json.dumps({"version": VERSION, "profiles": profiles}, indent=1).encode()
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)


class EndpointProfiles:
    """The profiles of the models at one endpoint."""

    def __init__(self, store: ProfileStore, endpoint: Endpoint) -> None:
        self._store = store
        self._endpoint = endpoint
        self._keys: dict[str, str] = {}
        self._checked: set[str] = set()
        """The models of which a call has succeeded, or was made anew without what the file had."""

    def of(self, model: str) -> Profile:
        """What is known of this model."""
        entry = self._store.entry(self._key(model))
        return UNKNOWN if entry is None else entry.profile

    def learn(self, model: str, **learned: Any) -> None:
        """Remember these fields. They are written to the file when a call has succeeded with them: see `confirm`."""
        key = self._key(model)
        known = self._store.entry(key)
        profile = replace(UNKNOWN if known is None else known.profile, **learned)
        if known is None or profile != known.profile:
            since = self._store.now() if known is None else known.since
            self._store.put(key, Entry(profile, since, self._endpoint.host, model, known is not None and known.stored))

    def saw_stream(self, model: str, has_streamed: bool) -> None:
        """Learn that the server streams, if it has. One that once sent a reply whole may stream the next."""
        if has_streamed and self.of(model).streams is None:
            self.learn(model, streams=True)

    def forget(self, model: str) -> None:
        """Learn this model anew."""
        self._store.drop(self._key(model))

    def relearn(self, model: str) -> bool:
        """Forget what came from the file and may be out of date. False if there is nothing like that."""
        key = self._key(model)
        entry = self._store.entry(key)
        if entry is None or not entry.stored or key in self._checked:
            return False
        self._checked.add(key)
        self._store.drop(key)
        return True

    async def confirm(self, model: str) -> None:
        """Note that a call with this profile succeeded, and write what is new in it to the file."""
        key = self._key(model)
        self._checked.add(key)
        if self._store.is_unsaved(key):
            await to_thread(self._store.save)

    def _key(self, model: str) -> str:
        """A digest, since some addresses contain a key."""
        if (key := self._keys.get(model)) is None:
            text = f"{self._endpoint.protocol}\n{self._endpoint.url}\n{model}"
            key = self._keys[model] = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
        return key


UNKNOWN = Profile()
