"""`delegate serve` and `delegate rpc`: delegate for programs in any language, over HTTP or on stdin and stdout.

Both offer the operations of `service.Service`, with the same JSON. `http` needs the extra `serve`.
"""
