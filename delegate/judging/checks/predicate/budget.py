"""What one evaluation may cost. Together with the absence of loops it makes every evaluation end soon.

Outside arrow functions each node runs once; a call of an arrow function costs the nodes of its body, and a built-in
method costs what it touches.
"""

from dataclasses import dataclass

from delegate.judging.checks.predicate.problems import PredicateError

MAX_CHARS = 8_192
"""Of the expression."""
MAX_NODES = 2_000
MAX_DEPTH = 80
MAX_STEPS = 200_000
MAX_STRING = 1_000_000
"""UTF-16 code units in a string that the expression makes."""
MAX_VALUES = 200_000
"""Values in the JSON, containers and keys counted."""
REGEX_SECONDS = 0.2
"""For all matching of one evaluation together."""
CHARS_PER_STEP = 64


@dataclass(slots=True)
class Budget:
    """What is left for one evaluation."""

    steps: int = MAX_STEPS
    regex_seconds: float = REGEX_SECONDS

    def spend(self, steps: int) -> None:
        """Pay for work before it is done; raises PredicateError when too little is left."""
        self.steps -= steps
        if self.steps < 0:
            raise PredicateError(f"the evaluation takes more than {MAX_STEPS:,} steps")

    def spend_chars(self, chars: int) -> None:
        """Pay for work that is linear in the length of a string."""
        self.spend(1 + chars // CHARS_PER_STEP)

    def make_string(self, chars: int) -> None:
        """Pay for a new string of that length."""
        if chars > MAX_STRING:
            raise PredicateError(f"a string becomes longer than {MAX_STRING:,} characters")
        self.spend_chars(chars)
