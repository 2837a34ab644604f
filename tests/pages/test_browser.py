"""Reports in a real browser: nothing hostile runs, everybody can read them, and they follow a run that goes on."""

import os
from pathlib import Path

import pytest

from tests.pages import recorded
from tests.pages.test_server import serving
from tests.support.browser import Browser, Page
from tests.support.words import met_by, words

TAB, ENTER = ("Tab", 9), ("Enter", 13)
AXE = Path(os.environ.get("DELEGATE_AXE", Path(__file__).parent.parent / "e2e/node_modules/axe-core/axe.min.js"))
SIDEWAYS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
OPEN_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
SHOWN = "[...document.querySelectorAll('.task')].filter((one) => one.checkVisibility()).length"
CONTRAST = "{runOnly: ['color-contrast']}"


async def write(home: Path, id: str, name: str = "report.html") -> str:
    path = Path(name).absolute()
    path.write_text(await recorded.html(home, id), encoding="utf-8")
    return path.as_uri()


async def test_hostile_texts_stay_inert_and_nothing_is_loaded(home: Path, browser: Browser) -> None:
    url = await write(home, await recorded.hostile_run())
    async with browser.page() as page:
        await page.open(url, width=360, height=740)
        await page.run(OPEN_ALL)
        await page.run(
            "document.querySelectorAll('*').forEach((one) => one.dispatchEvent(new MouseEvent('mouseover')))"
        )
        assert " of 3 PASS – Work " in await page.run("document.title")
        assert await page.run("document.scripts.length") == 1
        assert await page.run("performance.getEntriesByType('resource').length") == 0
        assert await page.run(SIDEWAYS) is False
        assert page.errors == []


async def test_axe_finds_nothing_serious(home: Path, browser: Browser) -> None:
    if not AXE.is_file():
        pytest.skip("needs axe-core: npm install axe-core, and DELEGATE_AXE=…/axe-core/axe.min.js")
    url = await write(home, await recorded.hostile_run())
    async with browser.page() as page, serving(home) as address:
        for one, dark, rules in ((url, False, "{}"), (url, True, CONTRAST), (str(address), True, "{}")):
            await page.open(one, dark=dark)
            await page.run(OPEN_ALL)
            await page.run(AXE.read_text(encoding="utf-8"))
            found = await page.run(f"axe.run({rules})")
            assert found["passes"]
            assert [one for one in found["violations"] if one["impact"] in ("serious", "critical")] == []


async def test_without_scripts_filters_and_quotes_work(home: Path, browser: Browser) -> None:
    client = words(recorded.child("I did the work."), met_by("I did the work."))
    tasks = [(f"row-{n}", _task("work" if n % 3 else "missing"), {"n": str(n % 2)}) for n in range(6)]
    url = await write(home, await recorded.batch(client, tasks))
    async with browser.page(scripts=False) as page:
        await page.open(url)
        assert await _count(page) == 6
        await page.run("document.querySelector('#f0').value = 'k0-1'")
        assert await page.run("document.querySelector('#f0').selectedOptions[0].label") == "PASS (4)"
        assert await _count(page) == 4
        await page.run("document.querySelector('#t2').open = true")
        await page.run("document.querySelector('#t2 .quote > summary').click()")
        assert await page.run("document.querySelector('#t2 mark').checkVisibility()") is True
        assert await page.run("document.querySelector('.folds').checkVisibility()") is False


async def test_the_keyboard_opens_a_task_and_its_quote(home: Path, browser: Browser) -> None:
    client = words(recorded.child("I did the work."), met_by("I did the work."))
    result = await recorded.run(client, _task("work"), _task("work"))
    url = await write(home, result.run_id or "")
    async with browser.page() as page:
        await page.open(url)
        for _ in range(3):  # past the two buttons
            await page.press(*TAB)
        await page.press(*ENTER)
        assert await page.run("document.querySelector('#t1').open") is True
        await page.press(*TAB)
        await page.press(*ENTER)
        assert await page.run("document.querySelector('#t1 mark').checkVisibility()") is True


async def test_a_running_run_is_followed_and_keeps_what_is_open(home: Path, browser: Browser) -> None:
    result = await recorded.run(words(recorded.child()), {"goal": "one"}, {"goal": "two"})
    handle = str(result.results[1].handle)
    sql = "SELECT ended_at, status, run, result FROM tasks WHERE handle = ?"
    ended = recorded.query(home, sql, handle)
    recorded.reopen(home, handle)
    async with browser.page() as page, serving(home) as address:
        await page.open(str(address / "run" / str(result.run_id)))
        assert await page.run("document.querySelector('#t2 .chip').textContent") == "RUNNING"
        await page.run("document.querySelector('#t1').open = document.querySelector('#t1 .part').open = true")
        recorded.execute(
            home, "UPDATE tasks SET ended_at = ?, status = ?, run = ?, result = ? WHERE handle = ?", *ended, handle
        )
        await page.run(
            "new Promise((done) => new MutationObserver(() => document.querySelector('#t2 .chip').textContent !== "
            "'RUNNING' && done()).observe(document.body, {childList: true, subtree: true}))"
        )
        assert await page.run("document.querySelector('#t1 .part .text').checkVisibility()") is True
        assert page.errors == []


async def test_a_report_of_a_thousand_tasks_opens_in_a_second(home: Path, browser: Browser) -> None:
    url = await write(home, await recorded.thousand(home))
    async with browser.page() as page:
        times: list[float] = []
        while len(times) < 4 and not any(0 < one < 1_000 for one in times):  # other processes may have had the cores
            await page.open(url)
            times.append(await page.run("performance.getEntriesByType('navigation')[0].domComplete"))
        assert 0 < min(times) < 1_000
        assert await _count(page) == 1_000
        await page.run("document.querySelector('#find').value = 'another'")
        await page.run("document.querySelector('#find').dispatchEvent(new Event('input', {bubbles: true}))")
        assert await page.run("document.querySelector('.shown').textContent") == "250 of 1000 shown"
        assert page.errors == []


def _task(pattern: str) -> dict[str, object]:
    criteria = ["the report says that the work was done", {"kind": "regex", "pattern": pattern}]
    return {"goal": "Do the work", "acceptance_criteria": criteria}


async def _count(page: Page) -> int:
    return int(await page.run(SHOWN))
