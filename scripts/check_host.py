"""Check one host's adapter and tests against its framework, which only its own venv has (`scripts/check_host.py mcp`).

Pyright takes a venv from its configuration alone, so one is written for each host from that in pyproject.toml.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Write the configuration and run pyright with it."""
    venv = sys.argv[1]
    host = venv.partition("@")[0]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pyright"]
    places = (
        f"delegate/hosts/{host}",
        *(f"delegate/hosts/{at}{host}.py" for at in ("", "serve/")),
        "delegate/batch/ray.py",
    )
    tests = (f"tests/hosts/drivers/{host}.py", f"tests/hosts/test_{host}.py", "tests/batch/ray_scene.py")
    tests += (f"delegate/child/{host}_connection.py", f"tests/hosts/test_{host}_servers.py")
    tests += (f"tests/support/{host}_agent.py",)
    wanted = [name for name in (*places, *tests) if (ROOT / name).exists() and ("ray" in name) == (host == "ray")]
    there = {"venvPath": str(ROOT / ".venv-hosts"), "venv": venv, "extraPaths": [str(ROOT)]}
    # An older version of a framework lacks some modules of the newest.
    missing = {"reportMissingImports": "none"} if "@" in venv else {}
    settings |= {"include": [f"../{name}" for name in wanted], "exclude": [], **there, **missing}
    file = ROOT / "build" / f"pyright-{venv}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(settings, indent=1), encoding="utf-8")
    sys.exit(subprocess.run([str(Path(sys.executable).parent / "pyright"), "-p", str(file)], check=False).returncode)


if __name__ == "__main__":
    main()
