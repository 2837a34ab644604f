"""Write the generated files of schemas/ from delegate/types/ and delegate/types/events.py (`make schemas`).

They describe the JSON that `Task`, `RunResult` and `Verdict` accept, and that of events. All that delegate writes
matches them.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from delegate.types import RunResult, Task, Verdict, events

FOLDER = Path(__file__).resolve().parent.parent / "schemas"
GENERATED = {
    "event": "types/events.py",
    "run_result": "types/result.py",
    "task": "types/request.py",
    "verdict": "types/verdict.py",
}
"""The source of each file, in delegate/."""

Json = dict[str, Any]


def document(name: str) -> str:
    """Return the text of one generated file."""
    if name == "event":
        schema = _events()
    else:
        model = {"run_result": RunResult, "task": Task, "verdict": Verdict}[name]
        schema = model.model_json_schema(by_alias=True, mode="validation")
    if name == "task":
        _allow_short_forms(schema["properties"])
    source = f"delegate/{GENERATED[name]}"
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"Generated from {source} by scripts/write_schemas.py (make schemas); do not edit.",
        "title": schema.pop("title"),
        "description": " ".join(schema.pop("description").split()),
    }
    return json.dumps(head | schema, indent=2, ensure_ascii=False) + "\n"


def _events() -> Json:
    """One event of any kind. In the mode "serialization", all fields are required."""
    kinds: tuple[Any, ...] = events.Event.__args__
    classes: tuple[Any, ...] = (*kinds, events.ToolRequest)
    for one in classes:
        one.__pydantic_config__ = ConfigDict(
            extra="forbid", use_attribute_docstrings=True, json_schema_serialization_defaults_required=True
        )
    one_of: Any = TypeAdapter(events.Event).json_schema(mode="serialization")
    definitions = one_of["$defs"]
    for one in classes:
        definitions[one.__name__]["description"] = " ".join((one.__doc__ or "").split())
    return {
        "title": "Event",
        "description": "Something that happened in a run, as it is recorded and as hosts receive it.",
        "oneOf": [{"$ref": f"#/$defs/{one.__name__}"} for one in kinds],
        "$defs": definitions,
    }


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
