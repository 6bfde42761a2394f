"""Answers to questions for wirings, in a process of their own, because each answer needs many plans."""

from __future__ import annotations

from importlib import import_module

from controller.circuits.messages import FindWiring, FoundWiring, MendedWiring, MendWiring


def prepare() -> None:
    """Import the modules that only this process needs, before the first question."""
    import_module("controller.circuits.live")


def answer(asked: FindWiring | MendWiring) -> FoundWiring | MendedWiring:
    """Return the answer. Raises ``SignalboxError`` when there is none."""
    from controller.circuits.live import find_wiring, mend_wiring

    return find_wiring(asked) if isinstance(asked, FindWiring) else mend_wiring(asked)
