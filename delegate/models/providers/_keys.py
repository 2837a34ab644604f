"""Keys that are asked for when they are needed, and again when they expire or a server refuses them.

Tokens of Azure, Google and gateways are valid for minutes or hours, children and servers run for days.
"""

import asyncio
import inspect
import json
import math
import os
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, cast

from delegate._util.redaction import redactor
from delegate.models.providers._endpoint import Endpoint
from delegate.types.errors import ProviderError

T = TypeVar("T")

ASK_SECONDS = 60.0
"""The time in which a key has to be there."""
MARGIN_SECONDS = 60.0
"""A key is asked for again this long before it expires, so that it doesn't expire on the way."""
NO_KEY = "none"
"""What is sent where there is no key: without one, the SDKs would read the environment."""
_KEY_NAMES = ("key", "token", "access_token", "accessToken")
_EXPIRY_NAMES = ("expires", "expires_at", "expires_on", "expiration", "Expiration")


@dataclass(frozen=True, slots=True)
class KeyCommand:
    """A program that prints a key: the key alone, or a JSON object with it and perhaps with the time when it expires.

    It runs in the home folder, since what lies in a workspace is a child's to change.
    """

    arguments: tuple[str, ...]

    def __call__(self) -> tuple[str, object]:
        """Run it. Blocks. Raises OSError, ValueError and the errors of `subprocess`."""
        home = os.path.expanduser("~")
        process = subprocess.run(
            self.arguments,
            cwd=home if os.path.isdir(home) else "/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_SECONDS,
            check=False,
        )
        if process.returncode:
            output = redactor.text(" ".join(process.stderr.decode(errors="replace").split()))
            raise ValueError(f"{self.arguments[0]} ended with status {process.returncode}: {output[-200:]}")
        text = process.stdout.decode(errors="replace").strip()
        if not text.startswith("{"):
            return text, None
        fields = cast("dict[str, Any]", json.loads(text))
        key, expires = (
            next((fields[name] for name in names if fields.get(name)), None) for names in (_KEY_NAMES, _EXPIRY_NAMES)
        )
        if key is None:
            raise ValueError(f"its JSON has no field {', '.join(_KEY_NAMES[:-1])} or {_KEY_NAMES[-1]}")
        return key, expires


class CurrentKey:
    """The key that a client sends. For use on one event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._ask = endpoint.ask_key
        self.text = endpoint.api_key or NO_KEY
        redactor.add_key(self.text)
        self._ask_at = math.inf if self._ask is None else -math.inf
        self._lock = asyncio.Lock()

    async def get(self) -> str:
        """The key, asked for if it isn't known or expires. Raises `ProviderError` if it can't be had."""
        if time.time() >= self._ask_at:
            async with self._lock:
                if time.time() >= self._ask_at:
                    await self._renew()
        return self.text

    async def replace(self, refused: str) -> bool:
        """Whether there is another key than the one that a server refused. It is asked for if no other call did."""
        if self._ask is None:
            return False
        async with self._lock:
            if self.text == refused:
                await self._renew()
        return self.text != refused

    async def _renew(self) -> None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                ask: Any = self._ask  # one that isn't async may block
                answer = ask() if inspect.iscoroutinefunction(ask) else await asyncio.to_thread(ask)
                answer = cast("object", await answer if inspect.isawaitable(answer) else answer)
            key, expires = cast("tuple[object, object]", answer) if isinstance(answer, tuple) else (answer, None)
            if not isinstance(key, str) or not key.strip():
                raise ValueError("there is no key in the answer")
            self.text, ask_at = key.strip(), _seconds(expires) - MARGIN_SECONDS
            redactor.add_key(self.text)
        except Exception as error:
            text = redactor.beginning(" ".join(f"{type(error).__name__}: {error}".split()), 300)
            message = f"{self._endpoint.protocol}: no key for {self._endpoint.shown_url}: {text}"
            raise ProviderError("auth", message, provider=self._endpoint.protocol, outcome="not_sent") from None
        self._ask_at = ask_at


def _seconds(expires: object) -> float:
    """A time in seconds since the epoch. Texts may be numbers or ISO 8601; None is never."""
    if expires is None:
        return math.inf
    if isinstance(expires, datetime):
        return expires.timestamp()
    if isinstance(expires, str) and not expires.replace(".", "").isdecimal():
        return datetime.fromisoformat(expires).timestamp()
    return float(cast("Any", expires))


async def with_key(key: CurrentKey, call: Callable[[str], Awaitable[T]]) -> T:
    """Make a call with the key, and once more with another key if the server refuses the first one."""
    sent = await key.get()
    try:
        return await call(sent)
    except ProviderError as error:
        refused = error.fault == "auth" and error.status in (400, 401)  # Google's is 400
        if not refused or not await key.replace(sent):
            raise
    return await call(key.text)
