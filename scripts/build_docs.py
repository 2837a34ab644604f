"""Build the site of docs/ into build/docs/site, strictly: a link, anchor, reference or picture that isn't there fails.

Run by `make docs` with the tools of the extra `docs`. The pages are copied first, together with the files elsewhere in
the repository that they link to, whose links are set right: what is `../judges/README.md` from a page on disk is
`judges/README.md` on the site. For agents, the site has each page as Markdown too, listed in `llms.txt`.
"""

import ast
import importlib.util
import inspect
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BUILD = ROOT / "build" / "docs"
PAGES = BUILD / "pages"
SITE = BUILD / "site"

_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s#]+)")
_LINK_TEXT = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_REFERENCE = re.compile(r"\[([^\]]+)\]\[delegate[\w.]*\]")
_PICTURE = re.compile(r"""<img\b[^>]*?\bsrc=["']([^"'?#]+)""")
_DOCSTRINGS = re.compile(r"^::: (\S+)\n(?: {4}.*\n?)*", re.MULTILINE)


def main() -> None:
    """Copy and build. Ends the process with Zensical's exit code."""
    shutil.rmtree(BUILD, ignore_errors=True)
    copy_pages()
    shutil.copy(DOCS / "zensical.toml", BUILD)
    zensical = Path(sys.executable).with_name("zensical")
    command = [str(zensical), "build", "--strict", "--config-file", str(BUILD / "zensical.toml")]
    if failed := subprocess.run(command).returncode:
        sys.exit(failed)
    if missing := missing_pictures(SITE):
        sys.exit("pictures that aren't on the site: " + ", ".join(missing))
    for page in PAGES.rglob("*.md"):
        (SITE / page.relative_to(PAGES)).write_text(for_agents(page.read_text(encoding="utf-8")), encoding="utf-8")
    (SITE / "llms.txt").write_text(llms_txt(), encoding="utf-8")


def copy_pages() -> None:
    """Copy the pages, and whatever they link to."""
    waiting, copied = sorted(DOCS.rglob("*.md")), set[Path]()
    while waiting:
        copied.add(file := waiting.pop())
        waiting += _copied(file) - copied


def missing_pictures(site: Path) -> list[str]:
    """The pictures of pages that aren't on the site, which Zensical doesn't look for."""
    return [
        f"{picture} in {page.relative_to(site)}"
        for page in sorted(site.rglob("*.html"))
        for picture in _PICTURE.findall(page.read_text(encoding="utf-8"))
        if not picture.startswith(("https:", "data:")) and not (page.parent / picture).is_file()
    ]


def _copied(file: Path) -> set[Path]:
    """Copy one file to its place on the site. Gives what it links to, except pages of docs/."""
    target = _place(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix != ".md":
        shutil.copy(file, target)
        return set()
    linked: set[Path] = set()

    def moved(link: re.Match[str]) -> str:
        to = (file.parent / link[1]).resolve()
        if not to.is_file() or not to.is_relative_to(ROOT):
            return link[1]  # for the builder to report
        if not to.is_relative_to(DOCS) or to.suffix != ".md":
            linked.add(to)
        return Path(os.path.relpath(_place(to), target.parent)).as_posix()

    target.write_text(_LINK.sub(moved, file.read_text(encoding="utf-8")), encoding="utf-8")
    return linked


def _place(file: Path) -> Path:
    return PAGES / file.relative_to(DOCS if file.is_relative_to(DOCS) else ROOT)


def for_agents(page: str) -> str:
    """A page without what only its HTML resolves: references to names, and the docstrings that it shows."""
    return _DOCSTRINGS.sub(lambda shown: f"```python\n{_outline(shown[1])}\n```\n", _REFERENCE.sub(r"\1", page))


def _outline(name: str) -> str:
    """The public names below a name of the package, with signatures and docstrings and without code."""
    return ast.unparse(_WithoutCode().visit(ast.parse(_source(name))))


def _source(name: str) -> str:
    """Of a module, which isn't imported since its framework may be missing, or of what a module defines."""
    with suppress(ModuleNotFoundError):
        if (spec := importlib.util.find_spec(name)) and spec.origin:
            return Path(spec.origin).read_text(encoding="utf-8")
    return textwrap.dedent(inspect.getsource(pkgutil.resolve_name(name)))


class _WithoutCode(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        return self._bodiless(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST | None:
        return self._bodiless(node)

    def _bodiless(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST | None:
        if node.name.startswith("_") and node.name != "__init__":
            return None
        node.body = [ast.Expr(ast.Constant(ast.get_docstring(node) or ...))]
        return node

    def visit_Import(self, node: ast.AST) -> None:
        """Imports are of no interest."""

    visit_ImportFrom = visit_If = visit_Import


def llms_txt() -> str:
    """A line for each page of the navigation: its Markdown, and its first sentence."""
    project = tomllib.loads((DOCS / "zensical.toml").read_text(encoding="utf-8"))["project"]
    head = [f"# {project['site_name']}", "", f"> {project['site_description']}", ""]
    return "\n".join([*head, *_listed(project["nav"]), ""])


def _listed(nav: list[dict[str, Any]]) -> Iterator[str]:
    for entry in nav:
        for title, target in entry.items():
            if isinstance(target, str):
                yield f"- [{title}]({target}): {_first_sentence(target)}"
            else:
                yield from ("", f"## {title}", "", *_listed(target))


def _first_sentence(page: str) -> str:
    file = next(file for file in (DOCS / page, ROOT / page) if file.exists())
    paragraphs = re.split(r"\n\s*\n", file.read_text(encoding="utf-8"))
    text = next(one for one in paragraphs if re.match(r"[\w`]", one))
    return " ".join(re.split(r"(?<=\.)\s", _LINK_TEXT.sub(r"\1", text), maxsplit=1)[0].split())


if __name__ == "__main__":
    main()
