"""An agent loop on the OpenAI SDK whose model can delegate.

Shows how to register the tool, how to answer its calls, and how all calls of a conversation share one set of limits.

    export OPENAI_API_KEY=...
    python examples/openai_loop.py "Have a haiku about a river written to haiku.txt, and one about snow to snow.txt."
"""

import asyncio
import sys
from typing import Any

from openai import AsyncOpenAI

from delegate import Delegator, Parent

MODEL = "gpt-6.1-terra"
MAX_TURNS = 20


async def converse(client: AsyncOpenAI, delegator: Delegator, request: str) -> str:
    """Run the parent model until it calls no more tools, at most `MAX_TURNS` times, and return its last message."""
    messages: list[Any] = [{"role": "user", "content": request}]
    tools: list[Any] = [delegator.tool("openai")]
    for _ in range(MAX_TURNS):
        completion = await client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
        message = completion.choices[0].message
        messages.append(message)
        calls = [call for call in message.tool_calls or [] if call.type == "function"]
        if not calls:
            return message.content or ""
        # `answer` takes the arguments as the model wrote them, and never raises for what a model did: an invalid call
        # is answered with what is wrong with it, so that the model can send it again.
        answers = await asyncio.gather(*(delegator.answer(call.function.arguments) for call in calls))
        for call, answer in zip(calls, answers, strict=True):
            print(answer, file=sys.stderr)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": answer})
    raise RuntimeError(f"the model still called tools after {MAX_TURNS} turns")


async def main(request: str) -> None:
    async with AsyncOpenAI() as client, Delegator(max_cost_usd=0.50) as delegator:
        # Inside `root_run` all calls share the limits, and no child or judge runs on a model above the parent's tier.
        with delegator.root_run(Parent(model=MODEL)):
            print(await converse(client, delegator, request))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
