"""Writes runs as HTML pages that load nothing, and work without scripts.

Every value passes through `clean` and is escaped, wherever a template prints it. A Content-Security-Policy allows only
the page's own style and its own script, each by its hash.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from delegate._util.fencing import clean
from delegate._util.redaction import redactor
from delegate.pages.values import PageView, RunLine, TaskView, Tone

TEMPLATES = Path(__file__).parent / "templates"
TEXT_CHARS = 200_000
"""Longest "copy as text"."""
FOLLOW_SECONDS = 5
"""How often a page is loaded again that follows a running run without scripts."""
_CHOICES: Mapping[Tone, str] = {
    "fail": "with a FAIL",
    "pass": "all passed",
    "none": "without verdicts",
    "run": "running",
    "warn": "interrupted, or not looked at",
}
"""Which runs the list can be limited to."""


class Page(NamedTuple):
    """A page, and the Content-Security-Policy that it also names itself."""

    html: str
    policy: str


def run_page(view: PageView, *, served: bool = False) -> Page:
    """The page of a run or batch. A `served` one links to the list of runs, and follows a run that is running."""
    text = run_text(view)
    if len(text) > TEXT_CHARS:
        text = f"{text[:TEXT_CHARS]}\n[… {len(text) - TEXT_CHARS:,} more characters …]"
    # For each choice of a filter, the rule that hides all other rows. So filters need no script.
    rules = "".join(
        f'body:has(#{menu.id} option[value="{key}"]:checked) .task:not(.{key}){{display:none}}\n'
        for menu in view.filters
        for _, key, _ in menu.choices
    )
    return _page("run.html", rules, served=served, live=served and view.state == "running", view=view, text=text)


def list_page(runs: Sequence[RunLine], *, words: str, only: str, limit: int) -> Page:
    """The page with the list of runs, each of which leads to its page.

    Only runs with all of these `words` in their goal or ID are shown, with the tone `only` if one is named, and at most
    `limit` of them.
    """

    def is_found(run: RunLine) -> bool:
        text = f"{run.goal} {run.run_id} {run.kind}".casefold()
        return only in ("", run.tone) and all(word in text for word in words.casefold().split())

    found = list(filter(is_found, runs))
    shown, is_live = found[:limit], any(run.state == "running" for run in runs)
    values = {"runs": shown, "found": len(found), "of": len(runs), "words": words, "only": only, "choices": _CHOICES}
    return _page("list.html", "", served=True, live=is_live, form_action="'self'", **values)


def compare_page(views: Sequence[PageView]) -> Page:
    """The page with two runs side by side, the older one first."""
    older, newer = sorted(views, key=lambda view: view.when)
    left: dict[str, list[TaskView]] = {}
    for task in older.tasks:
        left.setdefault(task.goal, []).append(task)
    # The same goal side by side, in the newer run's order, then what only the older one has.
    pairs = [(left[task.goal].pop(0) if left.get(task.goal) else None, task) for task in newer.tasks]
    alone = [(task, None) for tasks in left.values() for task in tasks]
    return _page("compare.html", "", served=True, live=False, views=(older, newer), pairs=[*pairs, *alone])


def problem_page(message: str) -> Page:
    """A page that says why there is nothing to show."""
    return _page("problem.html", "", served=True, live=False, message=message)


def run_text(view: PageView) -> str:
    """A run or batch as plain text: the headline, and each task with its verdict and why."""
    return _environment().get_template("run.txt").render(view=view)


def _page(template: str, rules: str, *, served: bool, live: bool, form_action: str = "'none'", **values: Any) -> Page:
    style, script = _file("style.css") + rules, _file("page.js")
    connect = "'self'" if live else "'none'"
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action {form_action}"
    )
    own = {"policy": policy, "style": style, "script": script}
    values |= {name: Markup(text) for name, text in own.items()}  # noqa: S704
    values |= {"served": served, "live": live, "follow_seconds": FOLLOW_SECONDS}
    return Page(redactor.text(_environment().get_template(template).render(values)), policy)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(("html",)),
        undefined=StrictUndefined,
        finalize=_cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _cleaned(value: Any) -> Any:
    """What a template prints, without characters that a reader can't see. Markup comes only from templates."""
    return clean(value).text if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _file(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
