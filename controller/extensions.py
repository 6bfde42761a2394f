"""Loading of the configured extension of the control loop."""

from __future__ import annotations

from controller.config import Config
from controller.core.messages import Extension
from controller.core.state import State


def configured(config: Config, state: State, now: float) -> Extension:
    """Return the configured extension; without one, an ``Extension`` that does nothing."""
    if config.circuits.switch:
        from controller.circuits.extension import CircuitExtension

        return CircuitExtension(config, state, now)
    if config.contention.is_used:
        from controller.contention.extension import ContentionExtension

        return ContentionExtension(config, state)
    return Extension()
