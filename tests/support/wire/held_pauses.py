"""Southbound process in which the pause of a stage lasts until a test ends it."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

PAUSE_S = 1.0
"""Pause of the stages that are held; the southbound itself uses shorter pauses."""


def run(held: Path, *arguments: Any) -> None:
    """Run the southbound, with every pause of ``PAUSE_S`` lasting as long as the file ``held`` exists.

    Main function of the process, in place of ``controller.serving.southbound_process.run``. A pause that begins when
    the file does not exist lasts for ``PAUSE_S`` as usual."""
    from controller.southbound import app, own_process
    from controller.southbound.framework import pause

    def pause_while_held(seconds: float = 0.0) -> None:
        if seconds < PAUSE_S or not held.exists():
            pause(seconds)
        while seconds >= PAUSE_S and held.exists():
            pause(app.TICK_S)

    with patch.object(app, "pause", pause_while_held):
        own_process.run(*arguments)
