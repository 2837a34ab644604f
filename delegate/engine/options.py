"""How a call is made."""

from dataclasses import dataclass

from delegate._util.cancellation import Cancellation
from delegate.budget.runs import RunContext
from delegate.engine.resume import Resumed
from delegate.judging.reading.statements import Template
from delegate.types import Author


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Who makes a call, and how, besides its tasks."""

    author: Author
    context: RunContext
    first_index: int = 0
    """The number of the first task."""
    is_run: bool = True
    """False for the items of a batch, which is one run: the call's beginning and end are no events then."""
    cancellation: Cancellation | None = None
    resumed: Resumed | None = None
    """Where the record of the only task ends, from which it goes on."""
    template: Template | None = None
    handle: str | None = None
    """The handle of the only task's record, if it is known before."""
    scratch: bool = False
    """Whether the children share a folder of texts."""
