"""Makes a virtual environment and installs this project in it: `python scripts/set_up.py VENV EXTRA …`.

`make` runs it with the machine's own Python. So it needs the standard library only, and an old Python can run it too,
to be told that it is too old. It shows what is being installed, since that takes a while.
"""

import re
import subprocess
import sys
import time

OLDEST = (3, 11)
_PACKAGE = re.compile(r"(?:Collecting|Requirement already satisfied:) ([\w.-]+)")


def main() -> None:
    """Install, and say what was done."""
    venv, extras = sys.argv[1], sys.argv[2:]
    if sys.version_info < OLDEST:
        found = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"delegate needs Python 3.11 or newer; this is {found}. Try: make PYTHON=python3.12")
    print(f"Installing delegate into {venv} (once) …", flush=True)
    started = time.monotonic()
    if subprocess.call([sys.executable, "-m", "venv", venv]):
        sys.exit("Python can't make a virtual environment; on Debian or Ubuntu: apt-get install python3-venv")
    project = f".[{','.join(extras)}]" if extras else "."
    count = install(
        [f"{venv}/bin/python", "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", "-e", project]
    )
    print(f"Installed {count} packages in {time.monotonic() - started:.0f} s.", flush=True)


def install(command: "list[str]") -> int:
    """Run pip, show which package it is at, and return the number of packages. Its own words are shown if it fails."""
    pip = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    assert pip.stdout
    output: list[str] = []
    packages: list[str] = []
    for line in pip.stdout:
        output.append(line)
        found = _PACKAGE.match(line.strip())
        if found and found.group(1) not in packages:
            packages.append(found.group(1))
            _show(len(packages), found.group(1))
    if sys.stdout.isatty():
        print("\r\x1b[K", end="")
    if pip.wait():
        sys.stderr.write("".join(output[-40:]))
        sys.exit("pip can't install delegate: see above")
    return len(packages)


def _show(count: int, package: str) -> None:
    """Show progress: on one line of a terminal, else from time to time."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K  {count} {package}", end="", flush=True)
    elif count % 20 == 0:
        print(f"  {count} packages so far", flush=True)


if __name__ == "__main__":
    main()
