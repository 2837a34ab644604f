"""An async function of your own as the child.

Shows what a function gets (`Job`), and how it reports its tool calls and tokens, so that criteria can be about them.
The function may be anything: an agent of another framework, a call of a remote service, or plain code.

    export OPENAI_API_KEY=...
    python examples/own_function.py
"""

import asyncio

from openai import AsyncOpenAI

from delegate import Delegator, Job, Task
from delegate.child.function import FunctionRunner
from delegate.types import ExpectedCall, ReceiptCriterion, RegexCriterion, TextCriterion, Usage

MODEL = "gpt-6-luna"
ORDERS = {"A-1042": "shipped on 3 November, expected on 9 November"}


async def answer_customer(job: Job) -> str:
    """Look the order up, let a model write the answer, and return it as the child's report."""
    order = "A-1042"
    state = ORDERS[order]
    job.record_tool("look_up_order", {"order": order}, state)  # the receipt that the criterion below asks for
    async with AsyncOpenAI() as client:
        # `job.prompt` is all that a child has to know in one text: goal, context and criteria.
        prompt = f"{job.prompt}\n\nOrder {order}: {state}."
        reply = await client.responses.create(model=MODEL, input=prompt)
    if reply.usage:
        used = Usage(model_calls=1, input_tokens=reply.usage.input_tokens, output_tokens=reply.usage.output_tokens)
        job.record_usage(used, model=reply.model)  # counts against the limits; its cost stays unknown
    return reply.output_text


async def main() -> None:
    task = Task(
        goal="Answer the customer's question about order A-1042.",
        context="The customer asks: when will my order arrive?",
        acceptance_criteria=(
            ReceiptCriterion(kind="receipt", calls=(ExpectedCall(tool="look_up_order", args={"order": "A-1042"}),)),
            RegexCriterion(kind="regex", pattern=r"\b9 November\b"),
            TextCriterion(text="the answer says when the order arrives, and promises nothing else", about="report"),
        ),
    )
    # `records_tools` says that the function reports every tool call. Without it, receipts prove nothing.
    async with Delegator(runner=FunctionRunner(answer_customer, records_tools=True)) as delegator:
        result = await delegator.run(task)
        print(delegator.render(result))


if __name__ == "__main__":
    asyncio.run(main())
