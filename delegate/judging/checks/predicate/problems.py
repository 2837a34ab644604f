"""The two ways in which an expression can end without a value."""

from delegate.errors import DelegateError
from delegate.judging.checks.predicate.text import one_line


class PredicateError(DelegateError):
    """The expression can't be decided: syntax, an unknown construct, a limit, or a coercion that isn't imitated.

    The text names the construct, and where it stands when it is the construct that isn't allowed. It is a fault of the
    criterion, and never a pass.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class Thrown(Exception):
    """What JavaScript would throw on this data, such as reading a property of `null`. The text says why.

    The expression is fine and the work isn't as it expects: the predicate does not hold.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))
