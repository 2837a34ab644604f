"""How often ordinary work has to ask: 40 calls, under the default policy and the one of docs/approvals.md."""

import re
import tomllib
from collections import Counter

from delegate.policy.decide import Action, decide
from delegate.policy.rules import Policy
from delegate.types.ports import Effect
from tests.support.pages import DOCS

FILES: frozenset[Effect] = frozenset({"files"})
SHELL: frozenset[Effect] = frozenset({"files", "commands"})
WEB: frozenset[Effect] = frozenset({"network"})


def shell(command: str) -> Action:
    return Action("run_shell", {"command": command}, effects=SHELL)


def write(path: str) -> Action:
    return Action("write_file", {"path": path, "content": "x"}, effects=FILES)


READS = [Action(tool, read_only=True) for tool in ("read_file",) * 10 + ("list_files",) * 3 + ("search_files",) * 4]
WRITES = [write(path) for path in ("src/app.py", "tests/test_app.py", "README.md", "docs/a.md", ".github/ci.yml")]
EDITS = [Action("edit_file", {"path": path}, effects=FILES) for path in ("src/app.py", "src/b.py", "setup.cfg")]
COMMANDS = [shell(command) for command in (
    "pytest -q", "pytest -q tests/test_app.py", "ls -la", "git status", "git diff", "cat src/app.py", "make test",
    "python script.py", "pip install -r requirements.txt", "git commit -am done", "git push", "rm -rf build",
)]  # fmt: skip
OTHERS = [
    Action("fetch_url", {"url": "https://example.com"}, effects=WEB),
    Action("send_mail", {"to": "a@example.com"}, effects=frozenset({"external"}), irreversible=True),
    Action("update_ticket", {"id": 7}),
]
CALLS = [*READS, *WRITES, *EDITS, *COMMANDS, *OTHERS]


def strict() -> Policy:
    """The example of the page."""
    page = (DOCS / "approvals.md").read_text(encoding="utf-8")
    found = re.search(r"```toml\n(\[policy\].*?)```", page, re.DOTALL)
    assert found
    return Policy.model_validate(tomllib.loads(found[1])["policy"])


def rates(policy: Policy) -> dict[str, int]:
    return dict(Counter(decide(call, policy).permission for call in CALLS))


def test_of_40_ordinary_calls_the_default_policy_asks_about_none() -> None:
    assert len(CALLS) == 40
    assert rates(Policy()) == {"allow": 40}


def test_the_page_says_how_many_calls_the_strict_example_asks_about() -> None:
    found = rates(strict())
    page = (DOCS / "approvals.md").read_text(encoding="utf-8").replace("\n", " ")
    assert f"it asks about {found['ask']} of them, refuses {found['deny']} and lets {found['allow']} pass" in page
