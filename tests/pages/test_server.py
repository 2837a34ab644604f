"""`delegate view` answers this machine's own browser with the token, and nobody else."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from delegate.cli.app import app
from delegate.pages.server import serve
from delegate.types.errors import CallError
from tests.cli.command import COMMAND
from tests.pages import recorded
from tests.support.words import words


@asynccontextmanager
async def serving(home: Path, *, port: int = 0) -> AsyncGenerator[URL]:
    """A server of the records in `home`."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(home, port=port, on_ready=address.set_result))
    try:
        done, _ = await asyncio.wait([task, address], return_when=asyncio.FIRST_COMPLETED)
        if task in done:
            await task
        yield URL(address.result())
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, CallError):
            await task


async def status(http: aiohttp.ClientSession, url: URL, *, method: str = "GET", **headers: str) -> int:
    async with http.request(method, url, headers=headers) as reply:
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
        return reply.status


async def test_it_serves_the_list_and_the_reports(home: Path) -> None:
    result = await recorded.run(words(recorded.child()), {"goal": "one"})
    async with serving(home) as url, aiohttp.ClientSession() as http:
        async with http.get(url) as reply:
            assert f'href="run/{result.run_id}"' in await reply.text()
            assert "frame-ancestors 'none'" in reply.headers["Content-Security-Policy"]
            assert reply.headers["Cache-Control"] == "no-store"
        async with http.get(url / "run" / str(result.run_id)) as reply:
            assert (reply.status, reply.content_type) == (200, "text/html")
            assert "I did the work." in await reply.text()
        async with http.get(url / "run" / "<script>alert(1)") as reply:
            assert (reply.status, "<script>alert" in await reply.text()) == (404, False)


async def test_the_list_is_searched_by_words_and_by_what_came_of_the_runs(home: Path) -> None:
    absent = [{"kind": "file", "path": "a.txt"}]
    tide = await recorded.run(words(recorded.child()), {"goal": "Note the tide, spring or neap."})
    moon = await recorded.run(words(recorded.child()), {"goal": "Note the moon.", "acceptance_criteria": absent})
    runs = {"tide": str(tide.run_id), "moon": str(moon.run_id)}

    async def listed(**query: str) -> set[str]:
        async with http.get(url.with_query(query)) as reply:
            text = await reply.text()
            assert "form-action 'self'" in reply.headers["Content-Security-Policy"]
            return {name for name, id in runs.items() if f'href="run/{id}"' in text}

    async with serving(home) as url, aiohttp.ClientSession() as http:
        assert await listed() == {"tide", "moon"}
        assert await listed(q="NEAP note") == {"tide"}
        assert await listed(q=runs["moon"]) == {"moon"}
        assert await listed(q="tide moon") == set()
        assert await listed(only="fail") == {"moon"}
        assert await listed(only="fail", q="tide") == set()
        assert await listed(only="nonsense") == set()
        async with http.get(url.with_query(q="note")) as reply:
            assert "2 of 2" in await reply.text()
        async with http.get(url.with_query(q='"><script>alert(1)</script>')) as reply:
            assert (reply.status, "<script>alert" in await reply.text()) == (200, False)


async def test_two_runs_stand_side_by_side_the_same_goals_in_one_row(home: Path) -> None:
    def tasks(*goals: str, path: str) -> list[dict[str, object]]:
        return [{"goal": goal, "acceptance_criteria": [{"kind": "file", "path": path}]} for goal in goals]

    hostile = "<script>alert(1)</script>"
    older = await recorded.run(words(recorded.child()), *tasks("Note the tide.", hostile, path="a.txt"))
    newer = await recorded.run(words(recorded.child()), *tasks("Note the moon.", "Note the tide.", path="b.txt"))
    then, now = str(older.run_id), str(newer.run_id)
    recorded.execute(home, f"UPDATE tasks SET began_at = began_at + 60 WHERE run_id = '{now}'")
    async with serving(home) as url, aiohttp.ClientSession() as http:
        for ids in ([then, now], [now, then]):
            async with http.get((url / "compare").with_query(run=ids)) as reply:
                text = await reply.text()
            assert reply.status == 200
            assert 0 < text.index(f"run/{then}") < text.index(f"run/{now}")
            rows = [re.sub(r"<[^>]+>|\s+", " ", row) for row in text.split("<tbody")[1:]]
            assert [row.count("not in this run") for row in rows] == [1, 0, 1]
            assert "Note the tide." in rows[1]
            assert rows[1].index("a.txt does not exist") < rows[1].index("b.txt does not exist")
            assert hostile not in text
        for ids, code in (([then], 400), ([then] * 3, 400), ([then, "nothing"], 404)):
            assert await status(http, (url / "compare").with_query(run=ids)) == code
        async with http.get(url / "compare") as reply:
            assert "choose two runs of the list, not 0" in await reply.text()
        async with http.get(url) as reply:
            assert f'name="run" value="{now}"' in await reply.text()


async def test_other_hosts_wrong_tokens_and_other_methods_are_refused(home: Path) -> None:
    async with serving(home) as url, aiohttp.ClientSession() as http:
        port = url.port
        assert await status(http, url) == 200
        assert await status(http, url, Host=f"localhost:{port}") == 200
        for host in ("evil.test", f"evil.test:{port}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.test:{port}", ""):
            assert await status(http, url, Host=host) == 404, host
        for path in ("/", "/favicon.ico", "/x/", f"{url.path[:-2]}/", f"{url.path}run/../../etc/passwd"):
            assert await status(http, url.with_path(path, encoded=True)) == 404, path
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert await status(http, url, method=method) == 405, method


async def test_a_page_that_cannot_be_made_is_an_error_with_all_headers(home: Path) -> None:
    await recorded.run(words(recorded.child()), {"goal": "one"})
    recorded.execute(home, "UPDATE tasks SET began_at = 1e300")  # which no clock can show
    async with serving(home) as url, aiohttp.ClientSession() as http:
        assert await status(http, url) == 500


async def test_a_port_in_use_is_named(home: Path) -> None:
    async with serving(home) as url:
        with pytest.raises(CallError, match=f"port {url.port} can't be used"):
            async with serving(home, port=url.port or 0):
                pass


def test_the_command_prints_the_address_and_ends_with_ctrl_c() -> None:
    with subprocess.Popen([*COMMAND, "view"], stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/\n", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0


def test_the_command_writes_a_page_and_overwrites_only_pages(capsys: pytest.CaptureFixture[str]) -> None:
    result = asyncio.run(recorded.run(words(recorded.child()), {"goal": "one"}, {"goal": "two"}))
    for arguments, title in (
        (["last"], "one and 1 more"),
        ([str(result.run_id)[:8], "2"], "two"),
        ([str(result.results[0].handle)], "one"),
    ):
        app(["page", *arguments], standalone_mode=False)
        assert capsys.readouterr().out.startswith("page.html: 0 of ")
        assert f"PASS – {title}</title>" in Path("page.html").read_text()
    app(["page", "-o", "-"], standalone_mode=False)
    assert capsys.readouterr().out.startswith("<!doctype html>")
    Path("notes.txt").write_text("mine")
    Path(".page.html.new").symlink_to("notes.txt")
    app(["page"], standalone_mode=False)
    assert (Path("notes.txt").read_text(), Path("page.html").is_symlink()) == ("mine", False)
    os.mkfifo("pipe")
    for output, problem in (
        ("notes.txt", "isn't a page of delegate"),
        (".", "is a folder"),
        ("no/a.html", "doesn't exist"),
        ("pipe", "isn't a regular file"),
    ):
        with pytest.raises(CallError, match=problem):
            app(["page", "-o", output], standalone_mode=False)
    assert Path("pipe").is_fifo()
    assert Path("notes.txt").read_text() == "mine"
    with pytest.raises(CallError, match="there is no record"):
        app(["page", "nothing"], standalone_mode=False)


async def test_clients_that_send_no_whole_request_are_dropped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegate._util.slow_clients.REQUEST_SECONDS", 0.1)
    monkeypatch.setattr("delegate.pages.server._LOOK_SECONDS", 0.05)
    async with serving(home) as url, aiohttp.ClientSession() as http:
        whole = f"GET {url.path} HTTP/1.1\r\nHost: {url.authority}\r\n\r\n".encode()
        for sent in (b"", whole[:20], whole):
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(sent)
            with suppress(ConnectionResetError):
                await asyncio.wait_for(reader.read(), 5)
            writer.close()
        assert await status(http, url) == 200


async def test_only_so_many_clients_wait(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegate._util.slow_clients.MAX_WAITING", 3)
    monkeypatch.setattr("delegate.pages.server._LOOK_SECONDS", 0.05)
    async with serving(home) as url, AsyncExitStack() as stack:
        readers = list[asyncio.StreamReader]()
        for _ in range(4):
            reader, writer = await asyncio.open_connection(url.host, url.port)
            stack.callback(writer.close)
            readers.append(reader)
        reading = [asyncio.create_task(reader.read()) for reader in readers]
        done, waiting = await asyncio.wait(reading, timeout=5, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(waiting)) == (1, 3)
        for task in waiting:
            task.cancel()
