"""Reads what Codex says of the turn that makes a call: the turn's id, its model, the user's repositories."""

import json
from collections.abc import Mapping
from typing import Any, cast

from delegate.types import JsonObject

CODEX_TURN = "x-codex-turn-metadata"
"""The key in a request's `_meta`."""


def codex_turn(meta: Mapping[str, Any]) -> JsonObject:
    """The description of the turn, which is an object or its JSON text. Empty for other clients."""
    turn = meta.get(CODEX_TURN)
    try:
        turn = json.loads(turn) if isinstance(turn, str) else turn
    except (ValueError, RecursionError):
        return {}
    return cast("JsonObject", turn) if isinstance(turn, dict) else {}
