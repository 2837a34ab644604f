"""Recognizes paths that are written as on Windows, where they mean something else."""

import re

_DRIVE = re.compile(r"([A-Za-z]):(?=[\\/]|[^\\/]+[\\/]|\w+$)")


def windows_path_hint(path: str) -> str | None:
    """How to write this path here; None if it isn't written as on Windows."""
    drive = _DRIVE.match(path)
    if drive is None and not ("\\" in path and "/" not in path):
        return None
    rest = path[2:].replace("\\", "/").lstrip("/") if drive else path.replace("\\", "/")
    if drive is None:
        return f"that is written as on Windows; here it is {rest}"
    if "\\" not in path and "/" not in path:  # the shell has taken the backslashes away
        return "that is a path of Windows; write it with / between folders, and in WSL with /mnt/c/ for C:\\"
    return f"that is a path of Windows; in WSL it is /mnt/{drive[1].lower()}/{rest}"
