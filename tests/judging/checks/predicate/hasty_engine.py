"""The engine of predicates with a third of the time, so that tests don't wait for its limit. A worker serves this."""

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


def _engine() -> Any:
    found = find_spec("delegate")  # its path, without importing it
    assert found is not None
    assert found.origin is not None
    spec = spec_from_file_location("engine", Path(found.origin).parent / "judging/checks/predicate/engine.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.CPU_SECONDS /= 3
    return module


engine = _engine()
prepare, answer = engine.prepare, engine.answer
