"""Drives Debian's headless Chromium over the DevTools protocol, to see pages as readers do."""

import base64
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import aiohttp

PROGRAM = shutil.which("chromium")
_FLAGS = (
    "--headless=new", "--remote-debugging-port=0", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--mute-audio", "--hide-scrollbars", "--no-zygote", "--disable-crash-reporter",
    "--force-color-profile=srgb",
)  # fmt: skip


class Page:
    """One tab. `errors` are what its console said about errors."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self.errors: list[str] = []
        self._socket = socket
        self._session = session
        self._numbers = itertools.count(1)
        self._events: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol in this tab, and return its result."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "sessionId": self._session, "method": method, "params": params})
        while True:
            message = await self._receive()
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    async def open(self, url: str, *, width: int = 1_280, height: int = 900, dark: bool = False) -> None:
        """Load a page and wait until it is complete."""
        await self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        await self.call("Page.navigate", url=url)
        while "Page.loadEventFired" not in self._events:
            await self._receive()

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the window."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        result = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def press(self, key: str, code: int) -> None:
        """Press a key, such as Tab (9) or Enter (13)."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text
            )

    async def picture(self, path: Path) -> None:
        """Write a PNG of what is in view."""
        shot = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    async def _receive(self) -> dict[str, Any]:
        message = cast("dict[str, Any]", await self._socket.receive_json(timeout=20))
        method, params = message.get("method", ""), message.get("params", {})
        self._events.append(method)
        entry = params.get("entry", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif (method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert")) or (
            entry.get("level") == "error"
        ):
            self.errors.append(json.dumps(entry or params))
        return message


class Browser:
    """A running browser. Its tabs don't share anything."""

    def __init__(self, address: str) -> None:
        self._address = address

    @asynccontextmanager
    async def page(self, *, scripts: bool = True) -> AsyncGenerator[Page]:
        """A new tab, with or without scripts."""
        async with aiohttp.ClientSession() as http, http.ws_connect(self._address, max_msg_size=0) as socket:

            async def call(number: int, method: str, **params: Any) -> dict[str, Any]:
                await socket.send_json({"id": -number, "method": method, "params": params})
                while (message := cast("dict[str, Any]", await socket.receive_json(timeout=20))).get("id") != -number:
                    pass
                return message["result"]

            context = (await call(1, "Target.createBrowserContext"))["browserContextId"]
            target = (await call(2, "Target.createTarget", url="about:blank", browserContextId=context))["targetId"]
            session = (await call(3, "Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
            page = Page(socket, session)
            for domain in ("Page", "Runtime", "Log"):
                await page.call(f"{domain}.enable")
            if not scripts:
                await page.call("Emulation.setScriptExecutionDisabled", value=True)
            yield page
            await call(4, "Target.disposeBrowserContext", browserContextId=context)


@contextmanager
def chromium(folder: Path) -> Generator[Browser]:
    """A browser whose profile is in `folder`."""
    assert PROGRAM, "chromium isn't installed"
    command = [PROGRAM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "TMPDIR": str(folder)}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        env=environment, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"DevTools listening on (ws://\S+)", line):
                yield Browser(found[1])
                break
        else:
            raise AssertionError("chromium ended before it listened")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stderr.close()
        process.wait()
