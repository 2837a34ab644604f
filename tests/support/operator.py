"""What an operator sets up on their machine."""

from delegate.policy.trust import own_file

MODEL = """
[[models]]
id = "m"
provider = "openai"
family = "f"
tier = "fast"
context_tokens = 1_000
max_output_tokens = 100
structured_output = true
tools = true
"""
"""A model that the operator declares."""


def own_settings(toml: str) -> None:
    """Write the operator's own settings file, which counts in full."""
    own_file().parent.mkdir(parents=True, exist_ok=True)
    own_file().write_text(toml, encoding="utf-8")
