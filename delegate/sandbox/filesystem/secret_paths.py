"""The paths on a machine that hold credentials or lead to services of the host. A sandbox hides them from commands."""

import itertools
import os
import pwd
import re
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from delegate.policy import trust

IN_HOME = (
    ".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh", ".config/glab-cli", ".config/hub", ".config/op",
    ".config/rclone", ".docker", ".kube", ".netrc", ".git-credentials", ".config/git/credentials",
    ".npmrc", ".yarnrc.yml", ".pypirc", ".config/pip", ".pip", ".cargo/credentials", ".cargo/credentials.toml",
    ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties", ".terraform.d", ".vault-token", ".oci",
    ".databrickscfg", ".snowflake", ".pgpass", ".my.cnf", ".boto", ".s3cfg", ".password-store",
    ".local/share/keyrings", ".mozilla", ".config/google-chrome", ".config/chromium", ".claude", ".claude.json",
    ".codex", ".gemini", ".qwen", ".copilot", ".config/github-copilot", ".hermes",
    ".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".mysql_history",
    ".local/share/fish/fish_history", ".cache/huggingface/token", ".huggingface", ".kaggle", ".pulumi", ".config/sops",
    ".config/doctl", ".config/hcloud", ".config/stripe", ".config/ngrok", ".cloudflared", ".composer/auth.json",
    ".config/composer/auth.json", ".config/BraveSoftware", ".config/microsoft-edge", ".thunderbird", ".config/Signal",
)  # fmt: skip
"""Paths below the home folder. What was typed into a shell or an interpreter often has a password in it."""
_ON_THE_MACHINE = (
    "/run/secrets", "/var/run/secrets", "/etc/kubernetes", "/etc/shadow", "/etc/gshadow", "/etc/ssh",
    "/etc/ssl/private", "/etc/pki/tls/private", "/etc/letsencrypt", "/etc/wireguard", "/etc/krb5.keytab",
    "/etc/NetworkManager/system-connections", "/var/lib/kubelet",
    "/run/user", "/run/dbus", "/run/systemd/private", "/run/docker.sock", "/run/podman", "/run/containerd", "/run/crio",
    "/run/libvirt", "/run/snapd.socket", "/run/buildkit", "/run/k3s", "/run/cri-dockerd.sock",
    "/var/lib/lxd/unix.socket", "/var/snap/lxd/common/lxd/unix.socket", "/var/lib/incus/unix.socket",
    "/run/initctl", "/run/dmeventd-server", "/run/dmeventd-client", "/run/service", "/run/s6", "/run/runit",
)  # fmt: skip
"""Credentials that the operating system, containers and Kubernetes mount; sockets, and named pipes that control
services: a read-only mount doesn't stop a program from using them."""
_MAX_SECRET_FILES, _KNOWN_SECONDS = 5_000, 5
_NAMED_BY = ("KUBECONFIG", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "NETRC",
             "DOCKER_CONFIG", "PGPASSFILE", "AZURE_CONFIG_DIR", "SSH_AUTH_SOCK", "VAULT_TOKEN_FILE")  # fmt: skip
"""Variables of the host that name files with credentials."""


def secret_paths(env: Mapping[str, str]) -> Iterator[Path]:
    """The real paths of what is there. `env` is the command's environment, which names its home folder."""
    yield from (real_path(path) for path in (*_usual_paths(env), trust.own_folder()) if os.path.lexists(path))


def secrets_in(root: str, home: str) -> frozenset[str]:
    """The real paths of secrets in the folder `root` (a real path) of somebody with this home folder, also of those
    that aren't there yet. There are none in a workspace that is itself among secrets.
    """
    return _secrets_in(f"{root.rstrip('/')}/", home, int(time.monotonic() / _KNOWN_SECONDS))


@lru_cache(64)
def _secrets_in(folder: str, home: str, period: int) -> frozenset[str]:
    usual = _usual_real_paths(home, tuple(map(os.environ.get, _NAMED_BY)), period)
    return frozenset([path for path in usual if path.startswith(folder)])


@lru_cache(4)
def _usual_real_paths(home: str, named: tuple[str | None, ...], period: int) -> tuple[str, ...]:
    """They are many, and the same for all workspaces: finding them for each took a fifth of a delegation's time."""
    return tuple(str(real_path(path)) for path in _usual_paths({"HOME": home}))


def is_secret_by_another_name(root: str, status: os.stat_result) -> bool:
    """Whether a file in the workspace `root` is a hard link to one that holds credentials. A list of paths can't tell,
    and somebody may have made it long ago. Fast for files without hard links.
    """
    if status.st_nlink < 2:
        return False
    secrets = _secret_files(root, os.environ.get("HOME", ""), int(time.monotonic() / _KNOWN_SECONDS))
    return (status.st_dev, status.st_ino) in secrets


@lru_cache(4)
def _secret_files(root: str, home: str, period: int) -> frozenset[tuple[int, int]]:
    """The devices and inodes of files with credentials; of so many at most that it takes milliseconds."""
    identities, remaining = set[tuple[int, int]](), _MAX_SECRET_FILES
    waiting = [path for path in map(str, secret_paths({"HOME": home})) if _below(path, root) is None]
    while waiting and remaining > 0:
        path = waiting.pop(0)
        with suppress(OSError):
            status = os.lstat(path)
            identities.add((status.st_dev, status.st_ino))
            if not stat.S_ISDIR(status.st_mode):
                continue
            with os.scandir(path) as entries:
                for entry in itertools.islice(entries, remaining):
                    remaining -= 1
                    identities.add((status.st_dev, entry.inode()))
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return frozenset(identities)


def _usual_paths(env: Mapping[str, str]) -> Iterator[str | Path]:
    homes = dict.fromkeys([env["HOME"]] if env.get("HOME") else [])
    with suppress(KeyError):  # the system's user database may say something else
        homes[pwd.getpwuid(os.getuid()).pw_dir] = None
    named = [part for name in _NAMED_BY for part in os.environ.get(name, "").split(os.pathsep) if part]
    return iter((*_ON_THE_MACHINE, *(f"{home}/{name}" for home in homes for name in IN_HOME), *named))


def hidden_paths(env: Mapping[str, str], hidden: Iterable[Path]) -> Iterator[Path]:
    """The real paths of secrets and of what is hidden besides, wherever they are mounted."""
    yield from mounted_at([*secret_paths(env), *map(real_path, hidden)])


def mounted_at(paths: Iterable[Path], table: str | None = None) -> Iterator[Path]:
    """These real paths, and those under which other mounts show the same folders and files, or parts of them.

    `table` is the text of /proc/self/mountinfo, which is read by default.
    """
    if table is None:
        table = ""
        with suppress(OSError):  # not on Linux
            table = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    fields = (line.split(" ", 5) for line in table.splitlines())
    mounts = [(part[2], _unescaped(part[3]), _unescaped(part[4])) for part in fields if len(part) == 6]
    mounts.sort(key=lambda mount: len(mount[2]))  # deeper ones and those that cover others last
    deepest_first, devices = mounts[::-1], Counter(device for device, _, _ in mounts)
    names: dict[str, None] = {}
    for path in map(str, paths):
        names[path] = None
        around = (one for one in deepest_first if path.startswith(one[2]) and _below(one[2], path) is not None)
        device, shown, point = next(around, ("", "", ""))
        if devices[device] < 2:
            continue
        inside = shown.rstrip("/") + (_below(point, path) or "")
        for other_device, other_shown, other_point in mounts:
            if other_device == device and other_point != "/":
                if (rest := _below(other_shown, inside)) is not None:
                    names[other_point + rest] = None
                elif _below(inside, other_shown) is not None:
                    names[other_point] = None
    yield from map(Path, names)


def _unescaped(path: str) -> str:
    return path if "\\" not in path else re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _below(folder: str, path: str) -> str | None:
    """`path` relative to `folder`, with a slash in front; empty for the folder itself, and None if it is elsewhere."""
    folder = folder.rstrip("/")
    rest = path.removeprefix(folder)
    return rest if path.startswith(folder) and rest[:1] in ("", "/") else None


def real_path(path: str | Path) -> Path:
    """The path without symbolic links."""
    return Path(os.path.realpath(path))
