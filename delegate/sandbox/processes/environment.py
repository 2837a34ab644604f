"""Selects the environment variables that a command gets: an allow-list, never the host's whole environment. And finds
the programs that delegate runs itself, outside any sandbox.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from delegate._util.secret_names import is_secret_name

_ALLOWED = frozenset({
    # User, shell and locale
    "HOME", "USER", "LOGNAME", "SHELL", "PATH", "TMPDIR", "TERM", "TZ", "LANG", "LANGUAGE",
    # Locations of toolchains. Without them, another toolchain than the user's may run unnoticed.
    "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "VOLTA_HOME", "JAVA_HOME", "GOROOT", "GOPATH",
    "CARGO_HOME", "RUSTUP_HOME", "GEM_HOME",
    # Locations of certificates
    "SSL_CERT_FILE", "SSL_CERT_DIR",
})  # fmt: skip
WITHOUT_NETWORK = {"npm_config_fetch_retries": "0", "PIP_RETRIES": "0", "CARGO_NET_RETRY": "0", "UV_OFFLINE": "1"}
"""For commands without the network: package managers try for up to a minute otherwise."""
CACHES = {"GOCACHE": "go-build", "UV_CACHE_DIR": "uv", "ZIG_GLOBAL_CACHE_DIR": "zig"}
"""The caches of programs that fail where they can't write one, in the folder for temporary files: for commands that
can't change anything in `cache_folder`."""
_LOCALE = frozenset({"LANG", "LC_ALL", "LC_CTYPE"})


def command_environment(source: Mapping[str, str]) -> dict[str, str]:
    """The variables of `source` that a command gets. A name that looks like a secret's is never passed on.

    Where they name no locale, it is the one for UTF-8 texts.
    """
    passed = {
        name: value
        for name, value in source.items()
        if (name in _ALLOWED or name.startswith("LC_")) and not is_secret_name(name)
    }
    passed.setdefault("PATH", os.defpath)
    # In the C locale, grep and others know only English letters.
    if sys.platform == "linux" and not passed.keys() & _LOCALE:
        passed["LANG"] = "C.UTF-8"
    return passed


def cache_folder(env: Mapping[str, str]) -> Path:
    """Where programs keep what they can make again."""
    return Path(os.path.realpath(env.get("HOME") or os.path.expanduser("~")), ".cache")


def find_program(name: str) -> str | None:
    """The path of a program that delegate itself runs; None if it isn't installed.

    Folders of the PATH that are relative, or in the working folder, are left out, as those of an activated virtual
    environment: a child that works there could put a program of this name in them. In a home folder, or above it, those
    with absolute paths count.
    """
    left_out, home = None, _real_folder(os.path.expanduser("~"))
    with suppress(OSError):  # the working folder was removed
        here = _real_folder(os.getcwd())
        left_out = None if home.startswith(here) else here
    for folder in filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep)):
        is_left_out = left_out is not None and _real_folder(folder).startswith(left_out)
        if not is_left_out and (program := shutil.which(name, path=folder)):
            return program
    return None


def _real_folder(path: str) -> str:
    return os.path.join(os.path.realpath(path), "")
