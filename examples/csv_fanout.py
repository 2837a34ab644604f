"""One child per row of a CSV file, each with its own criteria, and a file of results.

Shows `Delegator.batches.run`: tasks run side by side within a limit on cost, each at most once, and every result is
written as it comes, beside the columns of its row. A batch that was stopped can be continued:
`delegator.batches.run(..., resume=RUN_ID)`.

    export OPENAI_API_KEY=...      # or ANTHROPIC_API_KEY, or GEMINI_API_KEY
    python examples/csv_fanout.py examples/tickets.csv results.csv
"""

import asyncio
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from delegate import Delegator, Task
from delegate.batch.item import Item
from delegate.types import TextCriterion

SHAPE = {
    "type": "object",
    "properties": {
        "category": {"enum": ["billing", "bug", "question", "complaint"]},
        "reply": {"type": "string", "minLength": 20, "maxLength": 600},
    },
    "required": ["category", "reply"],
    "additionalProperties": False,
}


def tasks(path: Path) -> Iterator[Item]:
    with path.open(newline="", encoding="utf-8") as file:
        for n, row in enumerate(csv.DictReader(file), start=1):
            task = Task(
                goal="Sort the support ticket into one category and draft a reply to the customer.",
                context=f"The ticket:\n{row['text']}",
                tier="fast",
                output_schema=SHAPE,  # decided by code
                acceptance_criteria=(  # by a judge; `about` says that the report shows it
                    TextCriterion(text="the reply addresses what the ticket asks for", about="report"),
                ),
            )
            yield Item(str(n), task, row=n, input=row)  # the results repeat the columns of `input`


async def main(source: Path, results: Path) -> int:
    async with Delegator() as delegator:
        batch = delegator.batches.run(tasks(source), concurrency=4, max_cost_usd=1.00, results=results)
        async for outcome in batch:
            if outcome.result and (verdict := outcome.result.verdict):
                print(f"row {outcome.id}: {verdict.verdict} ({verdict.code})")
            else:
                print(f"row {outcome.id}: {outcome.state} {outcome.why}")
    print(f"{batch.tally.passed} of {batch.tally.total} passed; every result is in {results}")
    return 0 if batch.tally.all_good else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]))))
