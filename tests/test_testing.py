"""`delegate.testing`, used as in the tests of an application that delegates.

An outage of the judge is an example of docs/testing.md, which tests/test_docs.py runs.
"""

import subprocess
import sys

import pytest

from delegate import Delegator, Task, Verdict
from delegate.testing import ChatReply, ChatRequest, Scripted, judge_reply
from delegate.types import AboutFile, TextCriterion

WRITES = Scripted.call("write_file", path="note.txt", content="hello reader\n")
GREETS = TextCriterion(text="the note greets the reader", about=AboutFile(file="note.txt"))
TASK = Task(goal="Write note.txt.", acceptance_criteria=(GREETS,), model="gpt-6.1-terra")


async def verdict_of(model: Scripted) -> Verdict:
    async with Delegator(client=model) as delegator:
        result = await delegator.run(TASK)
    verdict = result.results[0].verdict
    assert verdict is not None
    return verdict


async def test_a_scripted_judge_is_believed_where_its_quote_is_found() -> None:
    verdict = await verdict_of(Scripted([WRITES, "I greeted them.", judge_reply(c1=("met", "hello reader"))]))
    assert (verdict.verdict, verdict.verified, verdict.decided_by) == ("PASS", True, "judge")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (("met", "good morning"), "evidence_not_found"),
        (("not_met", ""), "not_met"),
        (("cannot_tell", ""), "cannot_tell"),
        (("fine", "hello reader"), "judge_unparseable"),
    ],
)
async def test_other_answers_of_a_scripted_judge_fail(answer: tuple[str, str], code: str) -> None:
    verdict = await verdict_of(Scripted([WRITES, "I greeted them.", judge_reply(c1=answer)]))
    assert (verdict.verdict, verdict.code) == ("FAIL", code)


async def test_a_function_can_answer_for_child_and_judge() -> None:
    def answer(request: ChatRequest) -> ChatReply | str:
        if request.reply_schema is not None:
            return judge_reply(c1=("met", "hello reader"))
        return "I greeted them." if request.messages[-1].role == "tool" else WRITES

    assert (await verdict_of(Scripted(answer))).verdict == "PASS"


def test_importing_it_loads_no_sdk() -> None:
    code = "import sys, delegate.testing; print(sorted({'openai', 'anthropic', 'google.genai'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
