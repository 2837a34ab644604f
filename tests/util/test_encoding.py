import json
from pathlib import Path
from typing import Any

import pytest

from delegate._util.encoding import json_bytes


def nested(levels: int) -> Any:
    return {"in": nested(levels - 1)} if levels else "end"


def test_json_is_compact_and_keeps_all_characters() -> None:
    assert json_bytes({"a": ["ü", None, 1.5], "b": True}) == '{"a":["ü",null,1.5],"b":true}'.encode()


def test_lone_surrogates_become_question_marks() -> None:
    assert json_bytes({"\ud800": "ü\udfff"}) == '{"?":"ü?"}'.encode()


def test_deeply_nested_values_are_encoded() -> None:
    assert json.loads(json_bytes(nested(300))) == nested(300)


def test_what_json_does_not_have_is_converted_or_refused() -> None:
    assert json_bytes({"path": Path("a")}, fallback=str) == b'{"path":"a"}'
    assert json_bytes({"\ud800": object}, fallback=lambda value: value.__name__) == b'{"?":"object"}'
    with pytest.raises(TypeError):
        json_bytes({"value": object()})
