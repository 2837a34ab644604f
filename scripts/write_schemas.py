"""Write the generated files of schemas/ from delegate/types.py (`make schemas`).

They describe the JSON that `Task`, `Report` and `Verdict` accept. Everything that delegate writes matches them.
"""

import json
from pathlib import Path
from typing import Any

from delegate.types import Report, Task, Value, Verdict

FOLDER = Path(__file__).resolve().parent.parent / "schemas"
GENERATED: dict[str, type[Value]] = {"report": Report, "task": Task, "verdict": Verdict}

Json = dict[str, Any]


def document(name: str) -> str:
    """Return the text of one generated file."""
    schema = GENERATED[name].model_json_schema(by_alias=True, mode="validation")
    if name == "task":
        _allow_short_forms(schema["properties"])
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Generated from delegate/types.py by scripts/write_schemas.py (make schemas); do not edit.",
        "title": schema.pop("title"),
        "description": " ".join(schema.pop("description").split()),
    }
    return json.dumps(head | schema, indent=2, ensure_ascii=False) + "\n"


def _allow_short_forms(fields: Json) -> None:
    """Allow strings for criteria and workspaces, which the models convert before validation."""
    criteria = fields["acceptance_criteria"]
    criteria["items"] = {"anyOf": [{"type": "string", "minLength": 1}, criteria["items"]]}
    fields["workspace"]["anyOf"].insert(0, {"type": "string"})


def main() -> None:
    """Write all generated files."""
    for name in GENERATED:
        (FOLDER / f"{name}.json").write_text(document(name), encoding="utf-8")


if __name__ == "__main__":
    main()
