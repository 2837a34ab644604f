"""Many tasks: read from a file or a program, journalled, run by an engine, each with exactly one outcome."""
