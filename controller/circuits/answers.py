"""Answers the questions for wirings, in a process of its own: each takes many plans."""

from __future__ import annotations

from importlib import import_module

from controller.circuits.messages import FindWiring, FoundWiring, MendedWiring, MendWiring


def prepare() -> None:
    """Import what only this process needs, before there is a question."""
    import_module("controller.circuits.live")


def answer(asked: FindWiring | MendWiring) -> FoundWiring | MendedWiring:
    """Raises ``SignalboxError`` when there is no answer."""
    from controller.circuits.live import find_wiring, mend_wiring

    return find_wiring(asked) if isinstance(asked, FindWiring) else mend_wiring(asked)
