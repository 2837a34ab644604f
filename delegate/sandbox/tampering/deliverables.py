"""Tells which of the files that a child changed are what the task asked for, and which could bend a check.

A check proves something if it succeeds with the files of before and only the deliverables. These are the files that
`deliverables` names, and what these refer to. Without that, those that the goal or a criterion names; without any
names, source files. Data that tests, scripts or a comparing command name is what the work is compared with, and no
deliverable. The lists of `machinery.py` (tests, configuration, scripts) are the default for what is none unless
somebody says so.
"""

import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from posixpath import basename

from delegate.sandbox.filesystem import files, paths
from delegate.sandbox.tampering.machinery import MODULE, Globs, Machinery, Role, role_of_name, shadows
from delegate.sandbox.tampering.scripts import scripts_of
from delegate.sandbox.workspace.snapshot import Difference, Frozen
from delegate.types import AboutFile, FileCriterion, ShellCriterion, Task
from delegate.types.errors import ToolError

_READ_BYTES = 200_000
_MOST_READ = 200
"""So many tests and scripts are searched for the names of files."""
_SOURCE = re.compile(
    r".*\.(awk|sed|jq|py|pyx|pyi|[cm]?[jt]sx?|vue|svelte|go|rs|c|h|cc|cpp|cxx|hh|hpp|java|kt|kts|scala|swift|rb|php|pl|pm|lua|jl|r"
    r"|ex|exs|erl|hs|ml|fs|cs|vb|dart|zig|nim|m|mm|sql|sh|bash|css|scss|html?|md|rst|txt|tex)",
    re.IGNORECASE,
)
_PROSE = re.compile(r".*\.(html?|md|rst|txt|tex)", re.IGNORECASE)
_PRODUCT = re.compile(
    r"(.*/)?(target|build|dist|out|bin|obj|node_modules|\.[^/]+)/.*|(.*/)?\.[^/]*"
    r"|.*\.(o|a|so|obj|lib|dll|dylib|exe|class|jar|pyc|pyo|pyd|rlib|rmeta|d|gcda|gcno|stamp|timestamp|cache)"
)
"""What programs write, and hidden files."""
_RECORDS = (".log", ".lock", ".stamp")
"""Files that tell what programs did. One that was there isn't work."""
_WORK: tuple[Role | None, ...] = (None, "program")


@dataclass(frozen=True)
class Deliverables:
    """The child's changes, sorted by what they may be to one command."""

    task: Task
    criterion: ShellCriterion
    root: str
    """The workspace, as commands name it."""
    frozen: Frozen
    on_path: frozenset[str]
    """Folders of the workspace in which programs are looked up."""

    @cached_property
    def own(self) -> frozenset[str]:
        """What the task asked for. A link shows nothing of its own."""
        explicit = self.criterion.deliverables if self.criterion.deliverables is not None else self.task.deliverables
        if explicit is not None:
            return self._matching((*explicit, *self.criterion.may_change))
        plain = {change.path: change for change in self.frozen.changes if self._may_be_work(change)}
        usual = {path for path, change in plain.items() if self._is_usual(change)}
        if self._mentioned and not self._named:  # nothing but files that the work is compared with
            usual = set(filter(_is_code, usual))
        changeable = filter(Globs(self.criterion.may_change), plain)
        committed = {path for path in plain if path.startswith(".git/")}
        work = self._with_references(self._named, self._named & plain.keys(), usual) if self._named else usual
        return frozenset({*work, *changeable, *committed})

    def _matching(self, globs: Sequence[str]) -> frozenset[str]:
        """What these globs name, and what that refers to.

        A name without a folder is that of the file at the top, if there is one. What programs write, or load without
        being told to, counts only if it is named as such.
        """
        at_top = {glob for glob in globs if "/" not in glob and glob in self._all}
        is_meant = Globs([glob for glob in globs if glob not in at_top])
        is_product = Globs([glob for glob in globs if _is_product(glob)])
        matches = {path for path in self._all if path in at_top or is_meant(path)}
        own = {
            change.path
            for change in self.frozen.changes
            if change.path in matches
            and not self._is_link(change)
            and (is_product(change.path) or not _is_product(change.path))
            and (self.role(change) != "hook" or change.path in globs)
        }
        usual = {change.path for change in self.frozen.changes if self._may_be_work(change) and self._is_usual(change)}
        return frozenset(self._with_references(matches, own, usual))

    @cached_property
    def others_work(self) -> frozenset[str]:
        """What somebody else changed meanwhile, as far as it decides no check."""
        return frozenset(
            change.path
            for change in self.frozen.changes
            if change.path in self.frozen.foreign and self.role(change) in _WORK
        )

    def is_asked(self, change: Difference) -> bool:
        """Whether a file that is no deliverable is still one that the task may mean: it names it, or names nothing."""
        return self.is_named(change.path) or (not self._named and self.role(change) in _WORK)

    def may_be_needed(self, change: Difference, *, nothing_ran: bool) -> bool:
        """Whether an honest child may have changed what isn't a deliverable, and the check may need it.

        Then the check shows no more than that the child agrees with itself. Of tests, configuration and scripts that
        holds if the task names them, or if there was nothing of the kind before.
        """
        role = self.role(change)
        if role != "protected" and (role in _WORK or self._names(change.path)):
            return True
        if change.change != "added" or role in ("hook", "protected"):
            return False
        if role == "environment":  # packages that were installed because there were none
            return not any(path.startswith(_environment_of(change.path)) for path in self._before)
        words = _words(self.criterion.command)
        modules = {part for word in words for part in word.split(".")}
        is_run = _is_word(change.path, words) or basename(change.path).partition(".")[0] in modules
        if role == "test" and (nothing_ran or is_run):
            return True
        if role not in ("test", "config"):
            return False
        return not any(self._role(path) in ("test", "script", "protected") for path in self._before)

    def role(self, change: Difference) -> Role | None:
        """What a changed file is to the command; None for work."""
        if change.path in self._shadowing or basename(change.path).startswith("-"):  # an option, from a glob
            return "hook"
        if not change.decides:
            return None
        return self._role(change.path)

    @property
    def asks_for_code(self) -> bool:
        """Whether the task names source code that was there."""
        return any(map(_is_code, self._named & self._before.keys()))

    @cached_property
    def _named(self) -> frozenset[str]:
        """The files, of before or of now, that the goal, the context or a criterion names, and that may be work.

        A file that the command names too may be what it checks with: it counts if nothing else is named, or if it
        wasn't there, so that somebody had to make it. What the work is compared with doesn't count.
        """
        words = _words(self.criterion.command)
        run = {path for path in self._plain if _is_word(path, words, any_name=path in self._before)}
        new = {path for path in run if path not in self._before and not _is_product(path)}
        checked_with = {path for path in self._mentioned & run if path in self._before}
        mentioned = self._mentioned - checked_with or self._mentioned
        return frozenset({path for path in mentioned if not self._is_reference(path)} | new)

    @cached_property
    def _mentioned(self) -> frozenset[str]:
        """The same, whatever the file is to the command. A folder counts if no file is named."""
        globs = [criterion.path for criterion in self.task.criteria if isinstance(criterion, FileCriterion)]
        abouts = (getattr(criterion, "about", None) for criterion in self.task.criteria)
        globs += [about.file for about in abouts if isinstance(about, AboutFile)]
        is_meant = [Globs([glob]) for glob in globs if not glob.startswith("/")]
        matches = {path for path in self._plain if self._names(path) or any(matches(path) for matches in is_meant)}
        return frozenset(matches or filter(self._is_in_named_folder, self._plain))

    @cached_property
    def _plain(self) -> frozenset[str]:
        return frozenset(path for path in self._all if self._role(path) in _WORK)

    def _is_in_named_folder(self, path: str) -> bool:
        """Whether the task names a folder with the file in it. Build products count only if it names theirs."""
        ends = (at + 1 for at, char in enumerate(path) if char == "/")
        folders = [path[:end] for end in ends if path[:end] in self._words]
        return any(_is_product(folder + "_") for folder in folders) or (bool(folders) and not _is_product(path))

    def _is_reference(self, path: str) -> bool:
        """Whether a file that isn't code may be what the work is compared with, as a test or a script names it.

        So does a command that names several such files: one alone is what it looks at. A task may name such a file as
        well, to say what is in it, or that it must not be changed.
        """
        if path not in self._before or _is_code(path):
            return False
        by_command = self._data_of_command
        return (path in by_command and len(by_command) > 1) or _is_word(path, self._checking_words, any_name=True)

    @cached_property
    def _data_of_command(self) -> frozenset[str]:
        words = _words(self.criterion.command)
        return frozenset(path for path in self._before if not _is_code(path) and _is_word(path, words, any_name=True))

    @cached_property
    def _checking_words(self) -> frozenset[str]:
        """The words of the tests, the configuration and the scripts of before, and of programs that didn't change."""
        changed_paths = {change.path for change in self.frozen.changes}
        checking = [
            path
            for path in self._before
            if (role := self._role(path)) in ("test", "config", "script", "protected")
            or (role == "program" and path not in changed_paths)
        ]
        return _words("\n".join(self._text_before(path) for path in sorted(checking)[:_MOST_READ]))

    def is_named(self, path: str) -> bool:
        """Whether the task names the file."""
        return path in self._named or self._names(path)

    def _names(self, path: str) -> bool:
        """Whether a text names the file by its path or its name.

        A name without a suffix may be any word, unless there was such a file, or programs know it, as `Makefile`.
        """
        is_known = path in self._before or role_of_name(basename(path)) is not None
        return _is_word(path, self._words, any_name=is_known)

    # --------------------------------------------------------------------------------------------------------- parts

    @cached_property
    def _before(self) -> Mapping[str, object]:
        return self.frozen.start.origin if self.frozen.start is not None else {}

    @cached_property
    def _machinery(self) -> Machinery:
        scripts: dict[str, Role] = {}
        if (start := self.frozen.start) is not None:
            shell = [criterion.command for criterion in self.task.criteria if isinstance(criterion, ShellCriterion)]
            scripts = scripts_of(start.tree, [command.replace(self.root, str(start.tree)) for command in shell])
        return Machinery(self.criterion.protect, self.criterion.may_change, scripts, self.on_path)

    def _role(self, path: str) -> Role | None:
        machinery, inherited, folder = self._machinery, None, ""
        *folders, name = path.split("/")
        if folders[:1] == [".git"]:
            return machinery.git_role(path.removeprefix(".git/"))
        for part in folders:
            inherited = inherited or machinery.folder_role(folder, part)
            folder += f"{part}/"
        return machinery.file_role(folder, name, inherited)

    @cached_property
    def _shadowing(self) -> frozenset[str]:
        """New modules that Python would import instead of others, from a folder that may be on its path."""
        new_paths = [change.path for change in self.frozen.changes if change.change == "added"]
        modules = {path: match for path in new_paths if (match := MODULE.fullmatch(path.replace("/__init__.", ".")))}
        if not modules:
            return frozenset()
        own = {path.rpartition("/")[0] for path in self._before if self._role(path) in ("test", "script", "program")}
        packages = {path.rpartition("/")[0] for path in self._before if path.endswith("/__init__.py")}
        folders = {"", "src/", "lib/"} | {f"{folder}/" for folder in own - packages if folder}
        root = str(self.frozen.end.tree)
        both = self._before.keys() & self.frozen.end.origin.keys()
        shadowing: list[str] = []
        for path, match in modules.items():
            module = f"{match[1] or ''}{match[2]}"
            hides = "/__init__." in path and f"{module}.py" in both  # a new package, and a module that is still there
            if (match[1] or "") in folders and (hides or shadows(match[2], root)):
                shadowing += [f"{module}.", f"{module}/"]
        return frozenset(path for path in new_paths if path.startswith(tuple(shadowing)))

    def _is_usual(self, change: Difference) -> bool:
        """Whether a file that isn't named is usually the work: source files, and new files with a suffix."""
        if _is_product(change.path) or self._is_reference(change.path):
            return False
        return _SOURCE.fullmatch(change.path) is not None or (change.change == "added" and "." in basename(change.path))

    def _may_be_work(self, change: Difference) -> bool:
        """Whether it can be what was asked for: no machinery, and neither a deletion nor a link, which show nothing."""
        if self.role(change) not in _WORK or (self.role(change) == "program" and change.path not in self._named):
            return False
        if change.change == "deleted" or self._is_link(change):
            return False
        return change.change == "added" or not change.path.endswith(_RECORDS)

    def _is_link(self, change: Difference) -> bool:
        if change.change == "deleted":
            return change.path in self.frozen.replaced
        return stat.S_ISLNK(self.frozen.end.origin[change.path].mode)

    @cached_property
    def _all(self) -> Collection[str]:
        return {*self._before, *self.frozen.end.origin}

    @cached_property
    def _words(self) -> frozenset[str]:
        texts = [criterion.describe() for criterion in self.task.criteria if not isinstance(criterion, ShellCriterion)]
        return _words("\n".join([self.task.goal, self.task.context or "", *texts]))

    def _with_references(self, named: Collection[str], changed: Collection[str], usual: Collection[str]) -> set[str]:
        """Those of the named files that changed, and of the usual ones those that the work refers to, also by others.

        A new file counts where a deliverable refers to it. One that was there counts where a file referred to it
        before, so that the child can't bring in a helper of the tests by naming it.
        """
        result, waiting, seen = set(changed), [path for path in named if self._role(path) in _WORK], set(named)
        sources = {path for path in self._before if _SOURCE.fullmatch(path) and self._role(path) in _WORK}
        new = [path for path in usual if path not in self._before]
        while waiting:
            path = waiting.pop()
            before = self._text_before(path)
            reached = {source for source in sources - seen if _refers(before, source)}
            if path in result:
                now = self._text(self.frozen.end.tree, path)
                reached |= {source for source in new if source not in seen and _refers(now, source)}
            result |= reached & set(usual)
            seen |= reached
            waiting += reached
        return result

    def _text_before(self, path: str) -> str:
        return self._text(self.frozen.start.tree, path) if self.frozen.start is not None else ""

    def _text(self, tree: Path, path: str) -> str:
        try:
            return files.read(tree, paths.resolve(tree, path), _READ_BYTES).text
        except (ToolError, OSError):
            return ""


def found_no_tests(exit_code: int | None) -> bool:
    """Whether a test runner ended because it was asked for tests that don't exist."""
    return exit_code in (4, 5)


def _words(text: str) -> frozenset[str]:
    """What may be a path in a text: also between characters of scripts that don't separate words."""
    found_words = {*re.findall(r"[A-Za-z0-9_./@+~=-]+", text), *re.findall(r"[\w./@+~=-]+", text)}
    return frozenset(
        part for word in found_words for part in (word.strip("."), word.rstrip(".,").removeprefix("./")) if part
    )


def _is_word(path: str, words: Collection[str], *, any_name: bool = False) -> bool:
    """Whether the path, or the file's name, is one of these words. Without `any_name`, a bare name has a suffix."""
    name = basename(path)
    is_name = "." in name.lstrip(".") or any_name
    return ("/" in path and path in words) or (is_name and name in words) or f"./{path}" in words


def _is_product(path: str) -> bool:
    return _PRODUCT.fullmatch(path) is not None


def _is_code(path: str) -> bool:
    return _SOURCE.fullmatch(path) is not None and not _PROSE.fullmatch(path)


_GENERIC = frozenset({"__init__", "__main__", "index", "mod", "lib", "main"})


def _refers(text: str, path: str) -> bool:
    """Whether a source file refers to another one: by its name without the suffix, or by that of its package."""
    *folders, name = path.split("/")
    stem = name.partition(".")[0]
    word = name if not _is_code(path) else folders[-1] if stem in _GENERIC and folders else stem
    return bool(word) and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _environment_of(path: str) -> str:
    parts, machinery = path.split("/"), Machinery()
    place = next((n for n, part in enumerate(parts) if machinery.folder_role("", part) == "environment"), 0)
    return "/".join(parts[: place + 1]) + "/"


def named(names: Iterable[str], most: int = 5) -> str:
    """File names for a reason or a finding."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(files.shown(path) for path in names[:most]) + more
