"""Loads the extension of the control loop that is configured, and no other one."""

from __future__ import annotations

from controller.config import Config
from controller.core.extension import Extension
from controller.core.state import State


def configured(config: Config, state: State, now: float) -> Extension:
    """Return the extension; one that does nothing where none is configured."""
    if not config.circuits.switch:
        return Extension()
    from controller.circuits.extension import CircuitExtension

    return CircuitExtension(config, state, now)
