"""What an operator sets up on their machine."""

from delegate.trust import own_file


def own_settings(toml: str) -> None:
    """Write the operator's own settings file, which counts in full."""
    own_file().parent.mkdir(parents=True, exist_ok=True)
    own_file().write_text(toml, encoding="utf-8")
