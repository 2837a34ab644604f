"""`python -m delegate` is the `delegate` command."""

import os
import sys
from contextlib import suppress

from delegate.cli import main

if __name__ == "__main__":
    # `-m` looks for modules in the working folder first. A child may write there, and more is imported later.
    with suppress(FileNotFoundError):  # the folder was removed
        sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]
    main()
