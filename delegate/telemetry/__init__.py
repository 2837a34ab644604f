"""OpenTelemetry: spans of calls, children, model calls and tools, events of verdicts, and metrics.

`operations` is what the rest of delegate calls, and does nothing without a receiver. docs/telemetry.md shows what
is emitted.
"""
