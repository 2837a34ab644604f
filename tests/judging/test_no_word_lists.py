"""No list of words of one language decides a verdict: what is about what is declared, read by a model, or tried out."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import delegate

JUDGING = Path(delegate.__file__).parent / "judging"
WORDS = 6
"""A collection of so many words is a list of words."""
KNOWN = {
    "_EMPTY_WORDS",  # whole reports that are known to fool judges, in several languages: they show nothing
    "_PART_KEYS",  # the fields of a reader's reply
}


def word_lists() -> Iterator[str]:
    """Every collection and every alternation of plain words outside of `checks/`, which reads commands."""
    for path in sorted(JUDGING.rglob("*.py")):
        if "checks" in path.relative_to(JUDGING).parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {
            id(node.value): getattr(node.targets[0], "id", "?") for node in tree.body if isinstance(node, ast.Assign)
        }
        for top in tree.body:
            name = names.get(id(getattr(top, "value", None)), "?")
            for node in ast.walk(top):
                if name not in KNOWN and _is_word_list(node):
                    yield f"{path.relative_to(JUDGING)}:{getattr(node, 'lineno', 0)}"


def _is_word_list(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return max(map(_words_of, re.findall(r"[a-z]+(?:\|[a-z]+)+", node.value)), default=0) >= WORDS
    if not isinstance(node, (ast.Set, ast.Tuple, ast.List)):
        return False
    texts = [one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return sum(re.fullmatch(r"[a-z]{3,}", text) is not None for text in texts) >= WORDS


def _words_of(alternation: str) -> int:
    return sum(len(part) >= 3 for part in alternation.split("|"))


def test_no_list_of_words_decides_a_verdict() -> None:
    assert list(word_lists()) == []


def test_such_lists_are_found() -> None:
    assert _is_word_list(ast.parse('("sent", "wrote", "made", "named", "listed", "cited")', mode="eval").body)
    assert _is_word_list(ast.parse(r'r"\b(?:wrote|written|saved|created|stored|generated)\b"', mode="eval").body)
    assert not _is_word_list(ast.parse('("met", "not_met", "cannot_tell")', mode="eval").body)


def test_judges_has_prompts_rubrics_and_data_only() -> None:
    names = {path.name for path in (JUDGING.parents[1] / "judges").iterdir()}
    wanted = {
        "catalog.toml",
        "reading.md",
        "looking.md",
        "acceptance.md",
        "citations.md",
        "rubric.md",
        "rubrics",
        "months.json",
        "nothing_ran.toml",
        "outcomes.toml",
        "tools.toml",
        "README.md",
    }
    assert names == wanted
