"""A child's text while it is written: whole, in order, and without a part of any secret."""

from pathlib import Path
from typing import Any

import pytest

from delegate import Delegator, Event, Task, TaskResult
from delegate._util.redaction import Redactor
from delegate.engine import live_text
from delegate.engine.live_text import LiveText
from delegate.models.overrides import DeclaredEndpoint, DeclaredModel
from delegate.types.events import LIVE_CHARS, ChildText
from tests.support.deadlines import in_time
from tests.support.model_server import Call, Fault, ModelServer, Pieces, Reply
from tests.support.streams import events
from tests.support.wire_formats import FORMATS

SECRET = "sk-proj-3f9c1b7a5d2e8f4a6c0b9d1e7f3a5c2b3f9c1b7a"
VALUE = "correct-horse-battery-9-staple"
KEY = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n" * 12 + "-----END PRIVATE KEY-----"
PROSE = "The three orders of Monday were checked; two of them are refunded, one is not. "
MODEL = DeclaredModel(id="worker", tier="standard", context_tokens=100_000, max_output_tokens=9_000)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report as often as possible: what is safe must not depend on the clock."""
    monkeypatch.setattr(live_text, "_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(live_text, "_SHARE", 0)


def told(text: str, chars: int = 3) -> list[tuple[str, bool]]:
    """What is reported of a text that is written a few characters at a time."""
    reported: list[tuple[str, bool]] = []

    def notify(make: Any, /, *args: Any, **fields: Any) -> None:
        assert make is ChildText
        reported.append((fields["text"], fields["is_first"]))

    live = LiveText(notify, Redactor({"SHOP_TOKEN": VALUE}).text)
    for start in range(0, len(text), chars):
        assert live.on_text is not None
        live.on_text(text[start : start + chars])
    live.end()
    return reported


def shown(reported: list[tuple[str, bool]]) -> str:
    """What somebody has seen who follows the events."""
    text = ""
    for piece, is_first in reported:
        text = piece if is_first else text + piece
    return text


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("chars", [1, 7, 400])
def test_the_text_is_reported_whole_and_in_order(chars: int) -> None:
    text = PROSE * 9 + "\n\nGrüße 🦀 " + PROSE
    reported = told(text, chars)
    assert shown(reported) == text
    assert [is_first for _, is_first in reported] == [True, *[False] * (len(reported) - 1)]
    assert len(reported) > 3
    assert all(len(piece) <= LIVE_CHARS for piece, _ in reported)


BROKEN = f"{VALUE[:14]}\n{VALUE[14:]}"
SECRETS = {
    "key": (SECRET, SECRET),
    "value": (VALUE, VALUE),
    "broken value": (BROKEN, BROKEN),
    "private key": (KEY, "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"),
    "assignment": (f'password = "{VALUE}"', VALUE),
}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("text", "secret"), SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("chars", [1, 5, 31])
def test_no_part_of_a_secret_is_reported(text: str, secret: str, chars: int) -> None:
    whole = f"{PROSE * 3}\nIt uses {text} for that. {PROSE * 3}"
    reported = told(whole, chars)
    assert shown(reported) == Redactor({"SHOP_TOKEN": VALUE}).text(whole)
    everything = "".join(piece for piece, _ in reported)
    parts = [secret[at : at + 8] for at in range(len(secret) - 8)]
    assert not [part for part in parts if part in everything]


async def run(home: Path, script: Any, **options: Any) -> list[Event]:
    live: list[Event] = []
    with ModelServer(script) as server:
        endpoint = DeclaredEndpoint(name="house", base_url=server.openai_url, protocol="openai", models=(MODEL,))
        async with Delegator(
            home=home, model="worker", endpoints=(endpoint,), on_event=live.append, **options
        ) as delegator:
            await delegator.run(Task(goal="Check the orders."))
    return live


def pieces(text: str, **ending: Any) -> Pieces:
    return Pieces(events("chat", FORMATS["chat"].render(Reply(text), "worker", 1), chars=10), **ending)


@pytest.mark.usefixtures("at_once")
async def test_a_child_is_followed_while_its_model_writes(tmp_path: Path) -> None:
    live = await run(tmp_path, [pieces(PROSE * 5)], stream_text=True)
    texts = [event for event in live if isinstance(event, ChildText)]
    assert "".join(event.text for event in texts) == PROSE * 5
    assert len(texts) > 3
    kinds = [event.kind for event in live]
    assert kinds.index("child.started") < kinds.index("child.text") < kinds.index("child.usage")


async def test_nobody_gets_text_who_has_not_asked_for_it(tmp_path: Path) -> None:
    live = await run(tmp_path, [pieces(PROSE * 5)])
    assert "child.text" not in {event.kind for event in live}
    assert "child.usage" in {event.kind for event in live}


@pytest.mark.usefixtures("at_once")
async def test_a_reply_that_broke_off_is_replaced_by_the_next(tmp_path: Path) -> None:
    half = pieces("A first try. " * 30)
    calls = iter([Pieces(half.pieces[:-8], ending="close"), pieces(PROSE * 5)])

    def script(call: Call) -> Pieces | Fault:
        return next(calls)

    live = await run(tmp_path, script, stream_text=True)
    reported = [(event.text, event.is_first) for event in live if isinstance(event, ChildText)]
    assert any("first try" in text for text, _ in reported)
    assert shown(reported) == PROSE * 5


async def test_what_came_of_a_reply_is_the_report_of_a_child_that_ran_out_of_time(tmp_path: Path) -> None:
    cut = Pieces(pieces("Two of three orders are refunded. " * 9).pieces[:-3], ending="stall")

    async def play(seconds: float) -> TaskResult:
        with ModelServer([cut]) as server:
            endpoint = DeclaredEndpoint(name="house", base_url=server.openai_url, protocol="openai", models=(MODEL,))
            async with Delegator(home=tmp_path, model="worker", endpoints=(endpoint,)) as delegator:
                return (await delegator.run(Task(goal="Check the orders.", timeout_seconds=seconds))).results[0]

    result = await in_time(play, lambda result: bool(result.report))
    assert result.status == "timeout"
    assert (result.report or "").startswith("Two of three orders")
    assert "broke off" in (result.report or "")
