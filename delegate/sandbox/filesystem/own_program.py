"""Finds what runs delegate, as far as it is in a workspace: who changes that runs code outside of any sandbox."""

import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

_PACKAGE = Path(__file__).parents[2]
_INSTALLED_IN = ("site-packages", "dist-packages")


@lru_cache(16)
def own_program(root: Path) -> Sequence[Path]:
    """The real paths in `root`, a real path, of this Python, of its virtual environment, and of delegate's package with
    those installed in the same folder. A folder inside another of these is left out.
    """
    package = _PACKAGE.parent if _PACKAGE.parent.name in _INSTALLED_IN else _PACKAGE
    real = {Path(os.path.realpath(path)) for path in (sys.prefix, sys.base_prefix, package)}
    inside = [path for path in real if path != root and path.is_relative_to(root)]
    return tuple(path for path in inside if not any(path != other and path.is_relative_to(other) for other in inside))
