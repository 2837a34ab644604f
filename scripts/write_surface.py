"""Write tests/data/public_surface.json: the names that users rely on (`make schemas`).

A test holds the package to that file, so a change of the public surface has to be made on purpose: the names of
`delegate` and of each host module, the commands and options, and the schemas without their prose.
"""

import ast
import hashlib
import json
from pathlib import Path
from typing import Any, cast

import delegate
from delegate._util import resources
from delegate.cli.app import COMMANDS, command_of

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "data" / "public_surface.json"
PROSE = ("description", "title", "$comment", "examples")


def surface() -> dict[str, Any]:
    """The public surface as it is now."""
    package = Path(delegate.__file__).parent
    hosts = sorted(path for path in (package / "hosts").iterdir() if not path.name.startswith("_"))
    return {
        "delegate": delegate.__all__,
        "delegate.hosts": {path.stem: _public_names(path) for path in hosts},
        "commands": {
            name: sorted(option for param in command_of(name).params for option in (*param.opts, *param.secondary_opts))
            for name in sorted(COMMANDS)
        },
        "schemas": {
            file.name: _digest(file.read_text(encoding="utf-8"))
            for file in sorted(resources.folder("schemas").iterdir(), key=lambda file: file.name)
            if file.name.endswith(".json")
        },
    }


def _public_names(module: Path) -> list[str]:
    """The names of `__all__`, or all public functions and classes. Read as text: most frameworks aren't installed."""
    source = module if module.is_file() else module / "__init__.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return sorted(ast.literal_eval(node.value))
    defined = (node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)))
    return sorted(node.name for node in defined if not node.name.startswith("_"))


def _digest(schema: str) -> str:
    """The SHA-256 of a schema's text without its prose."""
    parsed = _without_prose(json.loads(schema))
    return hashlib.sha256(json.dumps(parsed, sort_keys=True).encode()).hexdigest()


def _without_prose(value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            name: _without_prose(part)
            for name, part in fields.items()
            if name not in PROSE or isinstance(part, dict)  # a property may be called like that
        }
    if isinstance(value, list):
        return [_without_prose(part) for part in cast("list[Any]", value)]
    return value


if __name__ == "__main__":
    FILE.write_text(json.dumps(surface(), indent=2) + "\n", encoding="utf-8")
