"""The program of a worker process: answers the requests on its standard input, one per line.

It is started by its path, without the rest of delegate, so that it is up quickly; neither it nor the module that it is
told to serve imports anything from delegate. `worker` kills it when an answer takes too long.
"""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location

MEMORY_BYTES = 1 << 30
CPU_SECONDS = 60
"""Of the whole life of the process."""


def main(path: str) -> None:
    """Serve the module at `path`: call its `prepare` once, and its `answer` for every line."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    spec = spec_from_file_location("served", path)
    assert spec is not None
    assert spec.loader is not None
    served = module_from_spec(spec)
    spec.loader.exec_module(served)
    served.prepare()
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin.buffer:
        print(json.dumps(served.answer(line)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
