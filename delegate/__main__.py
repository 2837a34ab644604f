"""`python -m delegate` is the `delegate` command."""

from delegate.cli import main

if __name__ == "__main__":
    main()
