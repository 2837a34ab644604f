"""OpenTelemetry: spans of calls, children, model calls and tools, events of verdicts, and metrics.

`operations` is what the rest of delegate calls, and costs nothing while nobody listens. docs/telemetry.md shows what
is emitted.
"""
