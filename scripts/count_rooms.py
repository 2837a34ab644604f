"""Print the rooms of the package: its folders and single modules, with their size and what they import.

A room is a folder or a module directly inside `delegate/`. An arrow leads from a room to one that it imports, at the
top of a module or later. A circle is a set of modules that import one another. `--inside` shows the folders inside the
rooms.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "delegate"


def room_of(module: str, depth: int) -> str:
    """The room of a module: its folder, or its own name where it lies directly in the package."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    folders = module.split(".")[1:] if path.is_dir() else module.split(".")[1:-1]
    return "/".join(folders[:depth]) + "/" if folders else f"{path.name}.py"


def late_imports(path: Path) -> int:
    """The number of imports inside functions."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = (node for function in ast.walk(tree) if isinstance(function, functions) for node in ast.walk(function))
    return len({(node.lineno, node.col_offset) for node in inside if isinstance(node, (ast.Import, ast.ImportFrom))})


def circles(graph: grimp.ImportGraph) -> Iterator[list[str]]:
    """The sets of modules, larger than one, of which each leads to every other (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_modules: list[str] = []

    def visit(module: str) -> Iterator[list[str]]:
        order[module] = lowest[module] = len(order)
        open_modules.append(module)
        for imported in graph.find_modules_directly_imported_by(module):
            if imported not in order:
                yield from visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in open_modules:
                lowest[module] = min(lowest[module], order[imported])
        if lowest[module] == order[module]:
            start = open_modules.index(module)
            circle = open_modules[start:]
            del open_modules[start:]
            if len(circle) > 1:
                yield sorted(circle)

    for module in sorted(graph.modules):
        if module not in order:
            yield from visit(module)


def main() -> None:
    """Print a row per room, and the sums."""
    graph = grimp.build_graph("delegate", exclude_type_checking_imports=False)
    depth = 2 if "--inside" in sys.argv else 1
    rooms = sorted({room_of(module, depth) for module in graph.modules if module != "delegate"})
    arrows = {
        (here, there)
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
        if (here := room_of(module, depth)) != (there := room_of(imported, depth))
        and "delegate" not in (module, imported)
    }
    print(f"{'lines':>7} {'modules':>8} {'late imports':>13} {'imports':>8} {'imported by':>12}  room")
    all_lines = all_late = 0
    for room in rooms:
        modules = [module for module in graph.modules if room_of(module, depth) == room and module != "delegate"]
        paths = [PACKAGE.joinpath(*module.split(".")[1:]) for module in modules]
        files = [path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for path in paths]
        lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files if file.exists())
        late = sum(late_imports(file) for file in files if file.exists())
        all_lines, all_late = all_lines + lines, all_late + late
        imports, imported = ({arrow for arrow in arrows if arrow[side] == room} for side in (0, 1))
        print(f"{lines:>7,} {len(modules):>8} {late:>13} {len(imports):>8} {len(imported):>12}  {room}")
    print(f"{all_lines:,} lines, {len(rooms)} rooms, {len(arrows)} arrows")
    print(f"{all_late} imports inside functions, {1_000 * all_late / all_lines:.1f} per 1,000 lines")
    closed = list(circles(graph))
    for circle in closed:
        print("circle:", ", ".join(circle))
    print(f"{len(closed)} circles")


if __name__ == "__main__":
    main()
