"""The public entry point, `Delegator`, and what it offers as `.background`, `.batches` and `.records`."""

from delegate.delegator.facade import Delegator, engine_of

__all__ = ["Delegator", "engine_of"]
