"""The environment variables that a command gets to see: a list of allowed ones, never the host's own set."""

import os
import re
from collections.abc import Mapping

_ALLOWED = frozenset({
    # Who and where
    "HOME", "USER", "LOGNAME", "SHELL", "PATH", "TMPDIR", "TERM", "TZ", "LANG", "LANGUAGE",
    # Where toolchains lie. Without them another toolchain than the user's may answer, silently.
    "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "VOLTA_HOME", "JAVA_HOME", "GOROOT", "GOPATH",
    "CARGO_HOME", "RUSTUP_HOME", "GEM_HOME",
    # Where certificates lie
    "SSL_CERT_FILE", "SSL_CERT_DIR",
})  # fmt: skip
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)


def command_environment(source: Mapping[str, str]) -> dict[str, str]:
    """What a command sees of `source`. A name that looks like a secret never passes, whatever else it looks like."""
    passed = {
        name: value
        for name, value in source.items()
        if (name in _ALLOWED or name.startswith("LC_")) and not _SECRET.search(name)
    }
    passed.setdefault("PATH", os.defpath)
    return passed
