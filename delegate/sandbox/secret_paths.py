"""The paths on a machine that hold credentials or lead to services of the host. A sandbox hides them from commands."""

import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from delegate import trust

IN_HOME = (
    ".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh", ".config/glab-cli", ".config/hub", ".config/op",
    ".config/rclone", ".docker", ".kube", ".netrc", ".git-credentials", ".config/git/credentials",
    ".npmrc", ".yarnrc.yml", ".pypirc", ".config/pip", ".pip", ".cargo/credentials", ".cargo/credentials.toml",
    ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties", ".terraform.d", ".vault-token", ".oci",
    ".databrickscfg", ".snowflake", ".pgpass", ".my.cnf", ".boto", ".s3cfg", ".password-store",
    ".local/share/keyrings", ".mozilla", ".config/google-chrome", ".config/chromium", ".claude", ".claude.json",
    ".codex", ".gemini", ".qwen", ".copilot", ".config/github-copilot", ".hermes",
)  # fmt: skip
"""Paths below the home folder."""
_ON_THE_MACHINE = (
    "/run/secrets", "/var/run/secrets", "/etc/kubernetes", "/etc/shadow", "/etc/gshadow", "/etc/ssh",
    "/run/user", "/run/dbus", "/run/systemd/private", "/run/docker.sock", "/run/podman", "/run/containerd", "/run/crio",
    "/run/libvirt", "/run/snapd.socket",
)  # fmt: skip
"""Credentials that the operating system, containers and Kubernetes mount, and sockets: a read-only mount doesn't stop
a program from connecting to a socket."""
_NAMED_BY = ("KUBECONFIG", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "NETRC",
             "DOCKER_CONFIG", "PGPASSFILE", "AZURE_CONFIG_DIR", "SSH_AUTH_SOCK", "VAULT_TOKEN_FILE")  # fmt: skip
"""Variables of the host that name files with credentials."""


def secret_paths(env: Mapping[str, str]) -> Iterator[Path]:
    """The real paths of what is there. `env` is the command's environment, which names its home folder."""
    named = [part for name in _NAMED_BY for part in os.environ.get(name, "").split(os.pathsep) if part]
    in_home = (f"{home}/{name}" for home in _homes(env) for name in IN_HOME)
    for path in (*_ON_THE_MACHINE, *in_home, trust.own_folder(), *named):
        if os.path.lexists(path):
            yield real_path(path)


def real_path(path: str | Path) -> Path:
    """The path without symbolic links."""
    return Path(os.path.realpath(path))


def _homes(env: Mapping[str, str]) -> dict[str, None]:
    """The home folder by the environment and by the system's user database, which may differ."""
    homes = dict.fromkeys([env["HOME"]] if env.get("HOME") else [])
    with suppress(KeyError):
        homes[pwd.getpwuid(os.getuid()).pw_dir] = None
    return homes
