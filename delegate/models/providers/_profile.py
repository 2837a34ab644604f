"""What was learned of a model at an endpoint, and the file that keeps it for the next process.

Servers of one API differ in what they accept, and only their refusals tell. Each refusal is a call, so what it teaches
is kept for `KEPT_SECONDS`; then the server is tried anew, since it may have been upgraded.
"""

import hashlib
import os
import threading
import time
from asyncio import to_thread
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, TypeAdapter

from delegate._util import forking
from delegate.models.providers._endpoint import Endpoint
from delegate.types import Effort

FILE = "endpoints.json"
"""In the folder `home`."""
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

    __pydantic_config__ = ConfigDict(extra="forbid")

    replies: Replies | None = None
    """None: by a schema, which wasn't refused so far."""
    efforts: tuple[Effort | Literal["default"], ...] | None = None
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
        return {name: value for name, value in asdict(self).items() if value is not None}


UNKNOWN = Profile()


@dataclass(frozen=True, slots=True)
class Entry:
    """A profile with the time of its first lesson, in seconds since the epoch."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    host: str
    model: str
    since: float
    profile: Profile
    stored: Annotated[bool, Field(exclude=True)] = True
    """Whether it comes from the file, and no call has confirmed it yet."""

    def is_current(self, now: float) -> bool:
        """Whether it is neither too old nor from a clock that is wrong."""
        return -SKEW_SECONDS <= now - self.since < KEPT_SECONDS


@cache
def _files() -> TypeAdapter[dict[str, Entry]]:
    return TypeAdapter(dict[str, Entry])  # built where it is needed: it takes some milliseconds


class ProfileStore:
    """The profiles of all endpoints, in memory and, with a `path`, in a file. Safe to use from several threads.

    The file is read when the first profile is needed. A damaged file, or one of another version, is ignored, and what
    can't be written is only remembered: nothing fails because of it. Several processes may write it: each adds what it
    has learned to what is there. It contains no address, key, or text of a server.
    """

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        """The time in seconds since the epoch."""
        self.unsaved: set[str] = set()
        """The keys of what the file lacks."""
        self._path = path
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] | None = None
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
        return entry if entry is not None and entry.is_current(self.clock()) else None

    def put(self, key: str, entry: Entry | None) -> None:
        """Remember an entry until it is saved. None: forget it, here and in the file with the next one."""
        self.entry(key)
        with self._lock:
            assert self._entries is not None
            self._entries.pop(key, None)
            if entry is not None:
                self._entries[key] = entry
            self.unsaved.add(key)

    def save(self) -> None:
        """Write what was learned. Blocks for a moment. What other processes read is always a whole file."""
        with self._lock:
            changed, self.unsaved = self.unsaved, set()
            if self._path is None or self._entries is None:
                return
            merged = self._read()
            for key in changed:
                ours, theirs = self._entries.get(key), merged.pop(key, None)
                if ours is not None:
                    known = {} if theirs is None else theirs.profile.learned()
                    merged[key] = replace(ours, profile=Profile(**{**known, **ours.profile.learned()}))
            newest = dict(sorted(merged.items(), key=lambda item: item[1].since)[-MAX_PROFILES:])
            new = self._path.with_name(f".{self._path.name}.{os.getpid()}.{token_hex(4)}")
            with suppress(OSError):
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                try:
                    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                        file.write(_files().dump_json(newest, exclude_none=True, indent=1))
                    os.replace(new, self._path)
                finally:
                    new.unlink(missing_ok=True)

    def _read(self) -> dict[str, Entry]:
        """What the file has, as far as it can be used and isn't too old."""
        try:
            if self._path is None or not self._path.is_file() or self._path.stat().st_size > MAX_BYTES:
                return {}
            entries = _files().validate_json(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        now = self.clock()
        return {key: entry for key, entry in entries.items() if entry.is_current(now)}


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
        known = self._store.entry(key) or Entry(self._endpoint.host, model, self._store.clock(), UNKNOWN, stored=False)
        profile = replace(known.profile, **learned)
        if profile != known.profile:
            self._store.put(key, replace(known, profile=profile))

    def saw_stream(self, model: str) -> None:
        """Learn that the server streams. One that once sent a reply whole may stream the next."""
        if self.of(model).streams is None:
            self.learn(model, streams=True)

    def forget(self, model: str) -> None:
        """Learn this model anew."""
        self._store.put(self._key(model), None)

    def relearn(self, model: str) -> bool:
        """Forget what came from the file and may be out of date. False if there is nothing like that."""
        key = self._key(model)
        entry = self._store.entry(key)
        if entry is None or not entry.stored or key in self._checked:
            return False
        self._checked.add(key)
        self._store.put(key, None)
        return True

    async def confirm(self, model: str) -> None:
        """Note that a call with this profile succeeded, and write what is new in it to the file."""
        key = self._key(model)
        self._checked.add(key)
        if key in self._store.unsaved:
            await to_thread(self._store.save)

    def _key(self, model: str) -> str:
        """A digest, since some addresses contain a key."""
        if (key := self._keys.get(model)) is None:
            text = f"{self._endpoint.protocol}\n{self._endpoint.url}\n{model}"
            key = self._keys[model] = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
        return key
