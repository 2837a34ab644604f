"""An agent loop on the Anthropic SDK whose model can delegate, without asyncio.

Shows the synchronous methods, and a second tool with which the parent reads a report that was too long for its result.

    export ANTHROPIC_API_KEY=...
    python examples/anthropic_loop.py "Have a haiku about a river written to haiku.txt, and one about snow to snow.txt."
"""

import sys
from typing import Any
from uuid import uuid4

from anthropic import Anthropic

from delegate import Delegator, Parent

MODEL = "claude-sonnet-5-5"
MAX_TURNS = 20


def converse(client: Anthropic, delegator: Delegator, request: str) -> str:
    """Run the parent model until it calls no more tools, at most `MAX_TURNS` times, and return its last message."""
    # Calls with the same `run_id` share one set of limits. `model` caps the tier of children and judges.
    parent = Parent(run_id=str(uuid4()), model=MODEL)
    delegate_task, read_delegation = (
        delegator.tool("anthropic", parent=parent),
        delegator.background.read_tool("anthropic"),
    )
    tools: list[Any] = [delegate_task, read_delegation]
    messages: list[Any] = [{"role": "user", "content": request}]
    for _ in range(MAX_TURNS):
        reply = client.messages.create(model=MODEL, max_tokens=8_000, messages=messages, tools=tools)
        messages.append({"role": "assistant", "content": reply.content})
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in reply.content if block.type == "text")
        results: list[Any] = []
        for call in calls:
            if call.name == read_delegation["name"]:
                text = delegator.wait_for(delegator.background.read_answer(call.input, parent=parent))
            else:
                text = delegator.answer_sync(call.input, parent=parent)
            print(text, file=sys.stderr)
            results.append({"type": "tool_result", "tool_use_id": call.id, "content": text})
        messages.append({"role": "user", "content": results})
    raise RuntimeError(f"the model still called tools after {MAX_TURNS} turns")


def main(request: str) -> None:
    with Anthropic() as client, Delegator(max_cost_usd=0.50) as delegator:
        print(converse(client, delegator, request))


if __name__ == "__main__":
    main(sys.argv[1])
