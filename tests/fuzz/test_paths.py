"""Fuzz path resolution with random folders and links: nothing outside is read, written or named."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from hypothesis import strategies as st

from delegate.sandbox.workspace.folder import Folder
from delegate.types.errors import ToolDenied, ToolError
from tests.fuzz.fuzzing import ends_soon, fuzz
from tests.fuzz.targets import check_path
from tests.fuzz.values import ANY_CHARACTER

NAMES = ("a", "b", "c", "file")
PARTS = st.sampled_from([*NAMES, "..", "..", ".", "", "secret", "{root}", "{outside}", "/", "A", "a ", "file/"])
PLACES: st.SearchStrategy[str] = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
RELATIVE: st.SearchStrategy[str] = st.lists(PARTS, min_size=1, max_size=6).map("/".join)
PATHS: st.SearchStrategy[str] = RELATIVE | st.builds(
    "{}/{}".format, st.sampled_from(["{root}", "{outside}"]), PLACES | RELATIVE
)
LINKS: st.SearchStrategy[dict[str, str]] = st.dictionaries(PLACES, PATHS, max_size=5)
ODD_NAMES = ["a" * 256, "a/" * 3_000, "../" * 2_000 + "etc", "~", "~root", "file:///etc/passwd", "/proc/self/fd/0"]
ODD_PATHS = st.text(ANY_CHARACTER | st.sampled_from("/.~\0\\"), max_size=60) | st.sampled_from(ODD_NAMES)


@st.composite
def walks(draw: st.DrawFn) -> tuple[dict[str, str], list[str]]:
    """Links, and paths of which some start with one of the links."""
    links = draw(LINKS)
    begun = st.builds("{}/{}".format, st.sampled_from([*links, "a"]), RELATIVE | PLACES)
    return links, draw(st.lists(PATHS | begun | st.sampled_from([*links, "a"]), min_size=1, max_size=6))


@contextmanager
def tree(links: dict[str, str]) -> Generator[Folder]:
    """A folder with some files and those links that can be created, next to a secret."""
    with tempfile.TemporaryDirectory() as place:
        root, outside = Path(os.path.realpath(place)) / "root", Path(os.path.realpath(place)) / "outside"
        for folder in (root / "a" / "b", root / "c", outside / "a"):
            folder.mkdir(parents=True)
        for file in (outside / "secret", outside / "file", outside / "a" / "file"):
            file.write_text("outside")
        (root / "a" / "file").write_text("inside")
        for link, target in links.items():
            with suppress(OSError):  # a parent is a file, a name is taken, the target is empty
                (root / link).symlink_to(target.format(root=root, outside=outside))
        yield Folder.of_existing(root)


def _everything_outside(folder: Folder) -> dict[str, str]:
    outside = folder.root.parent / "outside"
    return {str(path): path.read_text() for path in outside.rglob("*") if path.is_file()} | {
        str(path): "" for path in folder.root.parent.iterdir()
    }


@fuzz(25, walk=walks())
def test_no_way_leads_out_of_any_tree(walk: tuple[dict[str, str], list[str]]) -> None:
    links, paths = walk
    with tree(links) as folder:
        before = _everything_outside(folder)
        for path in paths:
            given = path.format(root=folder.root, outside=folder.root.parent / "outside")
            check_path(folder, given)
            with ends_soon(), suppress(ToolError):
                folder.write(given, b"written")
        assert _everything_outside(folder) == before


@fuzz(50, walk=walks())
def test_what_is_found_is_where_the_kernel_finds_it(walk: tuple[dict[str, str], list[str]]) -> None:
    links, paths = walk
    with tree(links) as folder:
        for path in paths:
            _check_against_kernel(folder, path.format(root=folder.root, outside=folder.root.parent / "outside"))


def _check_against_kernel(folder: Folder, path: str) -> None:
    try:
        kernels = (folder.root / path).resolve(strict=True)
    except (OSError, RuntimeError):  # it isn't there, or goes round in a circle
        return
    try:
        assert folder.resolve(path) == kernels
    except ToolDenied:
        assert not (path and kernels.is_relative_to(folder.root))


@fuzz(25, path=ODD_PATHS)
def test_any_text_is_a_place_inside_or_a_tool_error(path: str) -> None:
    with tree({"a/up": "../..", "c/out": "../../outside"}) as folder:
        check_path(folder, path)
        with ends_soon(), suppress(ToolError):
            folder.write(path, b"x")
