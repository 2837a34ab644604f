"""Write pictures of pages to build/page-screens/, and the one in the README to docs/screens/page.png.

A run, a batch of 60 rows, a task in goal mode and the list of runs are shown by headless Chromium, light and dark,
on a wide and on a narrow screen. Look at them after any change to the templates or the style.
"""

import argparse
import asyncio
import random
import tempfile
from contextlib import suppress
from pathlib import Path

from delegate import Delegator, Settings, Task
from delegate.batch.item import Item
from delegate.cli.demo.script import demo_tasks, find_python_by_name, scripted
from delegate.models.providers.scripted import Scripted
from delegate.pages.page import run_page
from delegate.pages.reading import RunReader
from delegate.pages.server import serve
from delegate.testing import judge_reply
from delegate.types import ShellCriterion, TextCriterion
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest
from tests.support.browser import Browser, Page, chromium

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "build" / "page-screens"
README_PICTURE = ROOT / "docs" / "screens" / "page.png"
WIDTHS = ((1_280, 860), (360, 740))
MOST_HEIGHT = 2_400
SETTLE = """document.documentElement.style.setProperty("--sans", "Roboto");
document.querySelectorAll(".task").forEach((task) => { task.style.contentVisibility = "visible"; });"""
"""A font that looks like those of readers, and no row that is drawn only once it is scrolled to."""
ROWS = 60
REGIONS, PLANS = ("Americas", "Asia", "Europe"), ("basic", "team")
TICKETS = (
    "The invoice for March was charged twice", "Exports stop after 1,000 rows", "Can we pay by bank transfer?",
    "The sign-up mail never arrives", "Dark mode hides the save button", "Please close our account",
)  # fmt: skip


async def answer_tickets(request: ChatRequest) -> ChatReply | str:
    """Children answer most tickets; some promise more than they do, and one judge can't be reached."""
    prompt = request.messages[0].text
    ticket = int(prompt.partition("ticket ")[2].split(":")[0].split()[0])
    await asyncio.sleep(random.uniform(0.05, 0.35))
    if request.reply_schema is not None:
        if ticket % 29 == 0:
            raise ProviderError("auth", "the key was refused", provider="scripted")
        quote = "We will refund it today" if ticket % 7 == 0 else "we looked into it and found the cause"
        return judge_reply(c2=("met", quote))
    if len(request.messages) == 1:
        text = (
            f"Dear customer,\n\nthank you for writing. About ticket {ticket}: we looked into it and found the cause.\n"
        )
        return Scripted.call("write_file", path="letter.txt" if ticket % 11 == 0 else "reply.md", content=text)
    return f"I answered ticket {ticket} in reply.md, and we looked into it and found the cause."


def tickets() -> list[Item]:
    """The rows of the batch."""
    criteria = (
        ShellCriterion(kind="shell", command="test -s reply.md"),
        TextCriterion(text="The report says that the cause was found"),
    )
    rows: list[Item] = []
    for n in range(1, ROWS + 1):
        subject, region, plan = TICKETS[n % len(TICKETS)], REGIONS[n % 3], PLANS[n % 5 == 0]
        task = Task(goal=f"Answer ticket {n}: {subject}", acceptance_criteria=criteria)
        rows.append(Item(f"ticket-{n}", task, n, input={"subject": subject, "region": region, "plan": plan}))
    return rows


def reach_goal(request: ChatRequest) -> ChatReply | str:
    """A child in goal mode: its first claim is refused, its second only repeats it, and its third is verified."""
    if request.reply_schema is not None:
        return judge_reply(c2=("met", "Retries wait twice as long each time, at most 30 s."))
    turn = sum(message.role == "assistant" for message in request.messages)
    claim = "I documented the retries in notes.md, and the longest wait."
    if turn in (0, 3):
        longest = " Retries wait twice as long each time, at most 30 s." if turn else ""
        return Scripted.call("write_file", path="notes.md", content=f"# Retries\n\nThere are five.{longest}\n")
    return Scripted.call("claim_complete", rationale=claim)


async def record_goal(settings: Settings) -> str:
    """A run in goal mode, and what people ruled on it later."""
    criteria = (
        ShellCriterion(kind="shell", command="grep -n 'at most' notes.md"),
        TextCriterion(text="notes.md says how long a retry waits at most, and why"),
    )
    async with Delegator(settings, client=Scripted(reach_goal)) as delegator:
        task = Task(goal="Document the retries in notes.md.", acceptance_criteria=criteria, mode="goal")
        result = await delegator.run(task)
        handle = result.results[0].handle or ""
        await delegator.records.rule(handle, "c2", "not_met", by="Ana", because="It says how long, and not why.")
    return result.run_id or ""


async def record(home: Path) -> dict[str, str]:
    """Run the demo, the batch and a task in goal mode, and return their ids."""
    settings = Settings(home=home, commands="allow")
    demo = demo_tasks()
    async with Delegator(settings, client=scripted(demo)) as delegator:
        result = await delegator.run(*(one.task for one in demo))
    async with Delegator(settings, client=Scripted(answer_tickets)) as delegator:
        batch = delegator.batches.run(tickets(), concurrency=6)
        async for _ in batch:
            pass
        (latest,) = await delegator.batches.latest(1)
    return {"run": result.run_id or "", "batch": latest.run_id, "goal": await record_goal(settings)}


async def take(page: Page, url: str, name: str, *, script: str = "") -> None:
    """Take the pictures of one page."""
    for width, height in WIDTHS:
        for dark in (False, True):
            await page.open(url, width=width, height=height, dark=dark)
            await page.run(SETTLE + script)
            whole = min(MOST_HEIGHT, await page.run("document.documentElement.scrollHeight"))
            await page.resize(width, max(height, whole))
            await page.picture(PICTURES / f"{name}-{width}-{'dark' if dark else 'light'}.png")
    assert not page.errors, page.errors


async def take_all(browser: Browser, home: Path, ids: dict[str, str]) -> None:
    """Take all pictures."""
    async with RunReader(home) as reader, browser.page() as page:
        for name, id in ids.items():
            path = PICTURES / f"{name}.html"
            path.write_text(run_page(await reader.view(id)).html, encoding="utf-8")
            await take(page, path.as_uri(), name)
        opened = "document.querySelectorAll('#t1, #t1 details').forEach((one) => { one.open = true; })"
        await take(page, (PICTURES / "run.html").as_uri(), "opened", script=opened)
        await page.open((PICTURES / "run.html").as_uri(), width=960, height=1_000)
        await page.run(SETTLE + "document.querySelector('#t1').open = document.querySelector('#t1 .quote').open = true")
        await page.picture(README_PICTURE)
        loop = asyncio.get_running_loop()
        address: asyncio.Future[str] = loop.create_future()
        serving = asyncio.create_task(serve(home, on_ready=address.set_result))
        await take(page, await address, "view")
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


async def main(home: Path) -> None:
    """Record, then take the pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    find_python_by_name()
    ids = await record(home)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, chromium(Path(profile)) as browser:
        await take_all(browser, home, ids)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, help="keep the records in this folder")
    given = parser.parse_args().home
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(given or Path(folder)))
