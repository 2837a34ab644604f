"""The one server that every contender talks to. `python -m scripts.bench.server` prints its address.

It serves until its stdin ends. A path that begins with `/50ms` makes the model take 50 ms; without such a beginning it
answers at once.
"""

import re
import sys

from scripts.bench.workload import answer
from tests.support.model_server import Call, ModelServer, Reply

_DELAY = re.compile(r"^/(\d+)ms/")


def script(call: Call) -> Reply:
    """The child's or the judge's words, after the time that the path asks for."""
    delay = _DELAY.match(call.path)
    return answer(call, int(delay[1]) / 1000 if delay else 0)


if __name__ == "__main__":
    with ModelServer(script, record=False) as server:
        print(server.url, flush=True)
        sys.stdin.read()
