"""What a child may fetch from the web."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """Limits of `fetch_url`. Hosts in `allowed_hosts` (`name` or `name:port`) may have non-public addresses."""

    allowed_hosts: tuple[str, ...] = ()
    max_bytes: int = 1_000_000
    timeout_seconds: float = 30
