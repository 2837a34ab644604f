"""Loops around any runner that end when work is verified, and otherwise at a limit. No model is called here.

    run_loop     observe → validate → decide → act, for whatever can be asked for its state
    run_shots    propose → verify → review → propose again, for runners without a conversation
    refusal      what a runner is told about a verdict that isn't a PASS

Goal mode of the built-in child tells it the same.
"""

from delegate.control.loop import Controller, LoopLimits, LoopResult, LoopStep, Stop, digest_of, run_loop
from delegate.control.review import refusal
from delegate.control.shots import Shots, run_shots

__all__ = [
    "Controller",
    "LoopLimits",
    "LoopResult",
    "LoopStep",
    "Shots",
    "Stop",
    "digest_of",
    "refusal",
    "run_loop",
    "run_shots",
]
