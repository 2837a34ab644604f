"""Count the imports inside functions, per folder and per 1,000 lines. Those for type checkers alone don't count.

An import at the top of a module shows what it depends on. Where a module is heavy, its importer is loaded late, as a
whole, so that few functions need imports of their own.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "delegate"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def in_functions(node: ast.AST, *, inside: bool = False) -> Iterator[ast.stmt]:
    """The import statements below a node that are inside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            if inside:
                yield child
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for statement in child.orelse:
                yield from in_functions(statement, inside=inside)
        else:
            yield from in_functions(child, inside=inside or isinstance(child, _FUNCTIONS))


def main() -> None:
    """Print a row per folder, most imports first, and the sum."""
    imports, lines = Counter[str](), Counter[str]()
    for path in PACKAGE.rglob("*.py"):
        source, inner = path.read_text(encoding="utf-8"), path.relative_to(PACKAGE)
        if "files" not in inner.parts:  # what children of the demo work on
            room = "/".join(inner.parts[:2]) if inner.parts[0] == "cli" else inner.parts[0]
            imports[room] += sum(1 for _ in in_functions(ast.parse(source)))
            lines[room] += len(source.splitlines())
    rows = [(imports[room], lines[room], room) for room in sorted(lines, key=lambda room: (-imports[room], room))]
    print(f"{'imports':>7}  {'lines':>6}  {'per 1,000':>9}  folder")
    for count, length, room in [*rows, (imports.total(), lines.total(), "all")]:
        print(f"{count:>7,}  {length:>6,}  {1000 * count / length:>9.1f}  {room}")


if __name__ == "__main__":
    main()
