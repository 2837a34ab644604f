"""Plays scenarios of `delegate mcp` in real MCP clients, without a network: `python -m scripts.clients [CLIENT …]`.

Each client is started headless, in a home folder of its own, with the block of configuration that `delegate mcp install
CLIENT` prints. Its model is a scripted server on this machine, which calls the tool and records every request: so it is
known which tools the first request had, what became of the tool's schema, and what exactly the model read as a result.
The children's and judge's model is another scripted server. Results are stored in `results.json`, one entry per client,
from which `docs/clients.md` is written.
"""
