"""The model server that all contenders use. `python -m scripts.bench.server` prints its address.

It runs until its stdin is closed. With a path that starts with `/50ms`, the model takes 50 ms per call; otherwise it
replies immediately.
"""

import re
import sys

from scripts.bench.workload import answer
from tests.support.model_server import Call, ModelServer, Reply

_DELAY = re.compile(r"^/(\d+)ms/")


def script(call: Call) -> Reply:
    """Return the reply of a child or a judge, with the delay given in the path."""
    delay = _DELAY.match(call.path)
    return answer(call, int(delay[1]) / 1000 if delay else 0)


if __name__ == "__main__":
    with ModelServer(script, record=False) as server:
        print(server.url, flush=True)
        sys.stdin.read()
