"""docs/ is true: its examples run, its links lead somewhere, its generated parts and its codes are those of the code.

A fenced block is run as it stands, in a folder of its own that holds the files which its page shows (blocks with a
`title`). A comment before a block says what is special about it: `<!-- not run: why -->`, `<!-- exits with 1 -->`, or
`<!-- output -->` for what the block before it prints.
"""

import ast
import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from delegate import Delegator, Task, Verdict
from delegate._util import resources
from delegate.batch.sources import TaskFile
from delegate.budget.runs import new_run_id
from delegate.cli.input.hooks import CRITERIA_FILE, criteria_as_tasks
from delegate.cli.input.taskfile import read_task
from delegate.contract import parse_call
from delegate.judging.checks.json_schema import check_schema
from delegate.judging.validate import refuse_undecidable
from delegate.models.catalog import Catalog
from delegate.models.overrides import effective_catalog
from delegate.policy.settings import Settings, load_settings
from delegate.types import AnyCriterion
from scripts import build_docs, write_events
from scripts.write_cli_reference import document as cli_reference
from scripts.write_settings import with_tables
from tests.support import pages, warm
from tests.support.model_server import Call, ModelServer, Reply
from tests.support.operator import own_settings
from tests.support.pages import DOCS, Block

ROOT = DOCS.parent
NOT_RUN = 30
"""Blocks that can't be run here. Raise this only for what needs a framework, a cluster or a network."""


# ------------------------------------------------------------------------------------------------------------ examples


def obliging(call: Call) -> Reply:
    """A model that writes the file that its goal names, reports it, and as a judge quotes what there is."""
    if call.wants_json:
        return Reply(json.dumps({"answers": list(_judged(call.last_text))}))
    if "delegate_task" in call.tool_names:  # it is the parent
        task = {"goal": "Write haiku.txt.", "acceptance_criteria": ["haiku.txt has three lines"]}
        return Reply("It was.") if call.tool_results else Reply(tool_calls=(("delegate_task", task),))
    goal = call.texts[0]
    named = re.search(r"\b[\w-]+\.(?:txt|md|py|json|csv)\b", goal)
    if named and not call.tool_results:
        return Reply(
            tool_calls=(("write_file", {"path": named[0], "content": "An old pond\na frog jumps in\nsplash\n"}),)
        )
    if "as JSON" in goal:
        return Reply('```json\n{"urls": ["https://example.com/merger"], "total": 3}\n```')
    report = f"I wrote {named[0]}, which has three lines." if named else "The CEO is Jane Doe."
    if "claim_complete" in call.tool_names:
        return Reply(tool_calls=(("claim_complete", {"rationale": report}),))
    return Reply(report)


def _judged(question: str) -> Iterator[dict[str, str]]:
    evidence = dict(re.findall(r"^<<<(\S+) \w+>>>\n(.*?)\n<<<end", question, re.DOTALL | re.MULTILINE))
    artifacts = [name for name in evidence if name.startswith("artifact:")]
    for id in re.findall(r"[\w.-]+", question.rsplit("exactly once:", 1)[1]):
        about = re.search(rf"^{id}: (.*)$", question, re.MULTILINE)
        source = "report" if not artifacts or (about and "report" in about[1]) else artifacts[0]
        quote = evidence[source].splitlines()[0]
        yield {"id": id, "source": source, "evidence": quote, "reason": "It is there.", "verdict": "met"}


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    served = tuple(model.id for model in Catalog.shipped().models if model.provider == "openai")
    with ModelServer(obliging, models=served) as running:
        yield running


@pytest.fixture
def environment(server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key and a server that answers to it, no way off this machine, and the `delegate` command of these sources."""
    for name, value in {
        "OPENAI_API_KEY": "dummy",
        "OPENAI_BASE_URL": server.openai_url,
        "PATH": os.pathsep.join([*warm.path(), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "support" / "offline"), str(ROOT)]),
        "HOME": str(tmp_path),
        "COLUMNS": "100",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # most of their time is spent on imports


def run(command: list[str], page: str) -> subprocess.CompletedProcess[str]:
    for name, text in pages.files_of(page).items():
        Path(name).write_text(text, encoding="utf-8")
    return subprocess.run(command, capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL)


def shape(text: str) -> str:
    """A program's output without what differs from run to run: numbers, ids, models, places, white space."""
    text = text.replace(str(Path.cwd()), "/here")
    for model in Catalog.shipped().models:
        text = text.replace(model.id, "MODEL")
    text = re.sub(r"\b[0-9a-f]{12}(?:[0-9a-f]{4}|[0-9a-f]{8})?\b", "ID", re.sub(r"/[\w./-]+", "PATH", text))
    return re.sub(r"\s+", " ", re.sub(r"\d+(?:[.,]\d+)*", "N", text)).strip()


def expect(block: Block, printed: str) -> None:
    if (shown := pages.output_of(block)) is not None:
        assert shape(printed) == shape(shown), printed


LINKING = [*pages.pages(), *ROOT.glob("*.md"), *ROOT.glob(".github/*.md")]
PYTHON = pages.all_blocks("python")
CONSOLE = pages.all_blocks("console")


@pytest.mark.parametrize("block", [block for block in PYTHON if block.is_run], ids=str)
def test_python_blocks_run_by_themselves(block: Block, environment: None) -> None:
    Path("example.py").write_text(block.text, encoding="utf-8")
    ran = run([*warm.python(), "example.py"], block.page)
    assert ran.returncode == 0, ran.stderr
    expect(block, ran.stdout)


@pytest.mark.parametrize("block", [block for block in PYTHON if not block.is_run], ids=str)
def test_python_blocks_that_cannot_run_are_python(block: Block) -> None:
    """And what they import of ours is there, unless its framework isn't."""
    tree = ast.parse(block.text.replace("[…]", "[]"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("delegate"):
            assert node.module == "delegate.hosts" or all(
                hasattr(__import__(str(node.module), fromlist=["_"]), name.name) for name in node.names
            )


def commands(block: Block) -> list[str]:
    """The lines after `$ `, with those that continue them."""
    return [found[1] for found in re.finditer(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)$", block.text, re.MULTILINE)]


@pytest.mark.parametrize("block", [block for block in CONSOLE if block.is_run], ids=str)
def test_commands_run(block: Block, environment: None) -> None:
    """All of a block in one shell. The targets of `make`, which is for checkouts, only have to exist."""
    expected = int(block.note.removeprefix("exits with ")) if block.note.startswith("exits with ") else 0
    made = [line for line in commands(block) if line.startswith("make ")]
    for line in made:
        assert f"\n{line.split()[1]}:" in (ROOT / "Makefile").read_text(encoding="utf-8"), line
    if script := [line for line in commands(block) if line not in made]:
        ran = run(["bash", "-ec", "\n".join(script)], block.page)
        assert ran.returncode == expected, (ran.stdout, ran.stderr)
        expect(block, ran.stdout)


def test_every_fence_is_read_and_few_blocks_are_not_run() -> None:
    for page in pages.pages():
        fences = re.findall(r"^ *(?:```|~~~)", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == 2 * len(pages.blocks(str(page.relative_to(DOCS)))), page
    assert [str(block) for block in (*PYTHON, *CONSOLE) if not block.is_run][NOT_RUN:] == []


@pytest.mark.parametrize("block", pages.all_blocks("toml"), ids=str)
def test_toml_blocks_are_settings_or_criteria(block: Block, tmp_path: Path) -> None:
    if "acceptance_criteria" in tomllib.loads(block.text):
        file = tmp_path / CRITERIA_FILE.name
        file.write_text(block.text, encoding="utf-8")
        assert criteria_as_tasks(file)
        return
    own_settings(block.text)
    settings = load_settings({})
    assert effective_catalog(settings.models, settings.endpoints, settings.judge_accuracy).models


def test_every_kind_of_criterion_has_a_section() -> None:
    kinds = {str(get_args(kind.model_fields["kind"].annotation)[0]) for kind in get_args(AnyCriterion)}
    assert kinds <= pages.anchors(DOCS / "criteria.md")


@pytest.mark.parametrize("value", [pytest.param(json.loads(one.text), id=str(one)) for one in pages.all_blocks("json")])
def test_json_blocks_are_what_they_look_like(value: Any) -> None:
    """A verdict, a report, a call, criteria, or the configuration of an MCP client or a hook."""
    match value:
        case {"verdict": _, "criteria": _}:
            Verdict.model_validate(value)
        case {"goal": _} | {"tasks": _}:
            for task in parse_call(value, check_schema=check_schema):
                refuse_undecidable(task)
        case {"kind": _} | [*_]:
            criteria: Any = [value] if isinstance(value, dict) else value
            refuse_undecidable(Task.model_validate({"goal": "…", "acceptance_criteria": criteria}))
        case {"mcpServers": {"delegate": {"command": "delegate"}}} | {
            "mcp": {"delegate": {"command": ["delegate", *_]}}
        }:
            pass
        case {"hooks": {"SubagentStop": [{"hooks": [{"command": "delegate hook"}]}]}} | {"decision": "block"}:
            pass
        case _:
            pytest.fail(f"nothing of ours: {json.dumps(value):.80}")


async def test_yaml_blocks_are_tasks_or_workflows(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    monkeypatch.setenv("OPENAI_API_KEY", "dummy")
    path = Path("tasks.yaml")
    async with Delegator() as delegator:
        for block in pages.all_blocks("yaml"):
            match yaml.safe_load(block.text):
                case {"jobs": jobs}:
                    steps = [step for job in jobs.values() for step in job["steps"]]
                    ours = [step for step in steps if step.get("uses", "").startswith("OWNER/delegate@")]
                    assert all(step["with"].keys() <= inputs.keys() for step in ours)
                case {"repos": repos}:
                    used = {hook["id"] for repo in repos for hook in repo["hooks"]}
                    assert used <= {hook["id"] for hook in hooks}
                case _:
                    path.write_text(block.text, encoding="utf-8")
                    assert (await delegator.batches.plan(TaskFile(path, read_task))).bad_rows == 0, block


# ------------------------------------------------------------------------------------------------------- links and nav


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in pages.links(page):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        folder, *_ = target.relative_to(ROOT).parts
        if folder in ("judges", "schemas"):  # which lie elsewhere where delegate is installed
            packaged = resources.folder(folder).joinpath(*target.relative_to(ROOT / folder).parts)
            assert packaged.is_file() or target == ROOT / folder, link
        else:
            assert target.exists(), link
        if anchor:
            assert anchor in pages.anchors(target), link


def test_ids_that_are_shown_are_as_long_as_those_of_runs() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in (*DOCS.rglob("*.md"), ROOT / "README.md"))
    shown = re.findall(r"^run (\w{8,})\b|\bhandle: ([0-9a-f]{8,})-|such as (\w{8,})-0", text, re.MULTILINE)
    lengths = {len("".join(ids)) for ids in shown}
    assert (len(shown) > 7, lengths) == (True, {len(new_run_id())})


def test_the_navigation_has_every_page_once() -> None:
    site = tomllib.loads((DOCS / "zensical.toml").read_text(encoding="utf-8"))
    ours = {str(page.relative_to(DOCS)) for page in pages.pages()} | {"judges/README.md", "schemas/README.md"}
    assert sorted(_listed(site["project"]["nav"])) == sorted(ours)


def _listed(nav: Any) -> Iterator[str]:
    for entry in nav:
        for target in entry.values():
            yield from [target] if isinstance(target, str) else _listed(target)


def test_the_pictures_of_pages_are_part_of_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_docs, "PAGES", tmp_path / "pages")
    build_docs.copy_pages()
    copied = {page: page.read_text(encoding="utf-8") for page in build_docs.PAGES.rglob("*.md")}
    pictures = {page.parent / to for page, text in copied.items() for to in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)}
    assert build_docs.PAGES / "screens" / "page.png" in pictures
    assert [picture for picture in pictures if not picture.is_file()] == []


def test_the_build_finds_a_picture_that_is_not_on_the_site(tmp_path: Path) -> None:
    (tmp_path / "here.png").touch()
    (tmp_path / "a.html").write_text(
        '<img src="here.png"><img alt="x" src="gone/b.png"><img src="https://x.test/c.png">'
    )
    assert build_docs.missing_pictures(tmp_path) == ["gone/b.png in a.html"]


def test_agents_get_a_line_for_each_page() -> None:
    listed = dict(re.findall(r"^- \[[^\]]+\]\(([^)]+)\): (\S.+)$", build_docs.llms_txt(), re.MULTILINE))
    site = tomllib.loads((DOCS / "zensical.toml").read_text(encoding="utf-8"))
    assert list(listed) == list(_listed(site["project"]["nav"]))


def test_agents_get_docstrings_and_no_code() -> None:
    page = build_docs.for_agents(
        "[`Settings`][delegate.Settings]\n\n::: delegate.Cancellation\n    options:\n\n## More\n"
    )
    assert page.startswith("`Settings`\n\n```python\nclass Cancellation:\n")
    assert "def cancel(self)" in page
    assert "self._" not in page
    assert page.endswith("```\n\n## More\n")


# ----------------------------------------------------------------------------------------------------- generated parts


def test_the_tables_of_settings_and_events_are_those_of_the_code() -> None:
    settings, events = ((DOCS / name).read_text(encoding="utf-8") for name in ("settings.md", "events.md"))
    assert (settings, events) == (with_tables(settings), write_events.with_table(events)), "run `make pages`"
    assert all(f"`{name}`" in settings for name in Settings.model_fields)


def test_the_command_reference_is_that_of_the_commands() -> None:
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert page == cli_reference(), "run `make pages`"
