"""Answers to questions about the wiring (the circuits) of a job.

They are computed in a separate process, because each answer needs many plans.
"""

from __future__ import annotations

from importlib import import_module

from controller.circuits.messages import FindWiring, FoundWiring, MendedWiring, MendWiring


def prepare() -> None:
    """Import the modules that only this process needs, before the first question."""
    import_module("controller.circuits.live")


def answer(asked: FindWiring | MendWiring) -> FoundWiring | MendedWiring:
    """Return the answer to a question. Raises ``SignalboxError`` when the planner has no answer."""
    from controller.circuits.live import find_wiring, mend_wiring

    return find_wiring(asked) if isinstance(asked, FindWiring) else mend_wiring(asked)
