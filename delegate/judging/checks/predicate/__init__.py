"""JavaScript expressions over one JSON value, decided by code.

`evaluate` finds out whether a text is one condition, and has `engine` evaluate it as it is in QuickJS, in a worker
process with limits of time and memory and without any input or output.

The last bits of `**`, which ECMA-262 leaves to the engine, differ from those of V8.
"""
