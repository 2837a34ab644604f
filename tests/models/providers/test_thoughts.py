"""Thoughts are taken out of texts, and what honest texts say about thoughts is not."""

import json
from pathlib import Path

import pytest

from delegate.models.providers._thoughts import without_thoughts
from tests.models.providers.conftest import WIRES, Opener
from tests.models.providers.test_dialects import ASK, chat_reply
from tests.support.model_server import Fault, ModelServer

ROOT = Path(__file__).resolve().parents[3]

THOUGHTFUL = [
    ("<think>hm\n</think>\n\nhello", "hello"),
    ("\n<think>\n\n</think>\n\nhello", "hello"),
    ("<thinking>hm</thinking>\n\nhello", "hello"),
    ("<thought>hm</thought>hello", "hello"),
    ("<reasoning>hm</reasoning>\nhello", "hello"),
    ("[THINK]hm[/THINK]hello", "hello"),
    ("<think>a</think>\n<think>b</think>\nhello", "hello"),
    ("<think>a</think>\nOne.\n<think>b\nc</think>\nTwo.", "One.\nTwo."),
    ("<think>about <think> tags</think> more\n</think>\n\nhello", "hello"),
    ("<think>\nnever ends", ""),
    ("[THINK]never ends", ""),
    ("<think>a</think>\n<think>never ends", ""),
    ("I have to greet.\n</think>\n\nhello", "hello"),  # DeepSeek's and Qwen's templates
    ("I have to greet.</think>\nhello", "hello"),  # GLM
    ("I have to greet.\n</think>hello", "hello"),
    ("Is it `</think>`?\nYes.\n</think>\n\nhello", "hello"),
    ("only thoughts\n</think>", ""),
    ("\n</think>\n\nhello", "hello"),
    ('hm\n</think>\n\n{"ok": true}', '{"ok": true}'),
]


@pytest.mark.parametrize(("text", "said"), THOUGHTFUL)
def test_thoughts_are_taken_out(text: str, said: str) -> None:
    assert without_thoughts(text) == said


HONEST = [
    "The parser drops <think> tags.",
    "<think> tags are dropped by the parser.",
    "The block ends with </think>\nand the answer follows.",
    "The block ends with </think>\n\nThen the answer follows.",
    "It looks for `</think>`\nand drops what is before it.",
    'It looks for "</think>"\n\nand drops what is before it.',
    "It looks for ‘</think>’\n\nand drops what is before it.",
    "Example:\n```\nthoughts\n</think>\n\nanswer\n```\nThat is all.",
    "Example:\n~~~\nthoughts\n</think>\nanswer\n~~~",
    "    ```\n    </think>\n    ```",
    "An example:\n<think>\nhm\n</think>\n\nanswer",
    "I wrote <think>hm</think> into the file.",
    "`<think>hm</think>` is what it prints.",
    "```xml\n<think>hm</think>\n```",
    '"<think>" is the first tag.',
    "- </think> is the last tag",
    "</think> is the last tag",
    "The tags are:\n</think> for the end\n",
    "hello <think>x</think>",
    '{"evidence": "the block ends with </think>", "verdict": "met"}',
    '{"evidence": "<think>hm</think>"}',
    '["</think>"]',
    "| tag | end |\n|---|---|\n| `<think>` | `</think>` |",
    "if text.endswith('</think>'):\n    return ''",
    "[THINK] is Mistral's tag.".replace("[THINK]", "The tag [THINK]"),
    "The user's reasoning: <reasoning> is optional.",
    "Ends [/THINK]\n\nwith that.",
    "a </think>\n\nb",
    "## Tags\n\n<thinking>\n\nis one of them.",
    "the tag (</think>)\n\nis closed",
]


@pytest.mark.parametrize("text", HONEST)
def test_an_honest_text_about_thoughts_is_kept(text: str) -> None:
    assert without_thoughts(text) == text


def test_recorded_replies_and_pages_are_kept() -> None:
    """Reports and replies of real models, and prose about code: none of them is changed."""
    rows = (ROOT / "tests/data/llmbar_replies.jsonl").read_text().splitlines()
    texts = [value for row in rows for value in json.loads(row).values() if isinstance(value, str)]
    texts += [page.read_text() for page in (*ROOT.glob("docs/*.md"), *ROOT.glob("delegate/**/*.py"))]
    assert len(texts) > 1_000
    assert [text[:80] for text in texts if without_thoughts(text) != text] == []


def test_a_server_that_has_sent_the_thoughts_elsewhere_quotes_the_tag() -> None:
    text = "The template's last line is\n</think>\nand then the answer."
    assert without_thoughts(text, parsed=True) == text
    assert without_thoughts(text) != text  # which only a server without a parser could mean


async def test_thoughts_of_all_kinds_are_no_part_of_a_text(opened: Opener) -> None:
    thinking = [{"type": "text", "text": "hm"}]
    messages = [
        {"content": "hello", "reasoning_content": "hm"},
        {"content": "hello", "reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"content": [{"type": "thinking", "thinking": thinking}, {"type": "text", "text": "hello"}]},
        {"content": [{"type": "text", "text": "<think>hm</think>"}, {"type": "text", "text": "hello"}]},
    ]
    with ModelServer([chat_reply(message) for message in messages]) as server:
        client = opened(WIRES["chat"], server)
        replies = [await client.complete(ASK) for _ in messages]
    assert [reply.text for reply in replies] == ["hello"] * 4
    assert all("hm" in json.dumps(reply.native) for reply in replies)


@pytest.mark.parametrize("wire", ["responses", "messages"])
async def test_compatible_servers_of_other_apis_leave_thoughts_in_texts_too(wire: str, opened: Opener) -> None:
    text = "<think>hm</think>\n\nhello"
    bodies = {
        "responses": {
            "status": "completed",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}],
        },
        "messages": {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"},
    }
    with ModelServer([Fault(200, bodies[wire])]) as server:
        reply = await opened(WIRES[wire], server).complete(ASK)
    assert reply.text == "hello"
    assert text in json.dumps(reply.native, ensure_ascii=False).replace("\\n", "\n")
