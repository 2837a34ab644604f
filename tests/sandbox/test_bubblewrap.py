"""The command line of bubblewrap, and what the kernel's files look like inside."""

import sys
from pathlib import Path

import pytest

from delegate.sandbox.commands.confinement import CommandSpec, Mounts, in_bubblewrap
from delegate.sandbox.commands.kernel_files import unusual_kernel_paths


def wrapped(bwrap: Path, cwd: Path) -> str:
    spec = CommandSpec(["true"], cwd, {}, 5, 1_000, network="none")
    return " ".join(in_bubblewrap(spec, Mounts([], {}), str(bwrap), 9))


@pytest.mark.parametrize(("says", "limited"), [("bubblewrap 0.8.0", True), ("bubblewrap 0.6.2", False), ("?", False)])
def test_memory_is_limited_where_bubblewrap_can(tmp_path: Path, says: str, limited: bool) -> None:
    bwrap = tmp_path / "bwrap"
    bwrap.write_text(f"#!/bin/sh\necho '{says}'\n")
    bwrap.chmod(0o755)
    argv = wrapped(bwrap, tmp_path)
    assert ("--size 1073741824 --tmpfs /tmp" in argv) == limited
    assert "--tmpfs /tmp" in argv


def test_the_kernels_settings_are_mounted_read_only_after_proc(tmp_path: Path) -> None:
    argv = wrapped(tmp_path / "none", tmp_path)
    assert "--proc /proc --ro-bind-try /proc/sys /proc/sys" in argv


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has /proc")
def test_only_the_usual_files_of_the_kernel_are_left() -> None:
    unusual, harmful = set(unusual_kernel_paths()), set(unusual_kernel_paths(harmful=True))
    assert harmful <= unusual
    assert not unusual & {"/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/mounts", "/proc/sys", "/proc/net"}
    assert {"/proc/keys", "/proc/kcore"} & {f"/proc/{path.name}" for path in Path("/proc").iterdir()} <= harmful
