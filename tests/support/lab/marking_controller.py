"""Controller with an extension that gives every job one DSCP, and every half a second the other one.

python -m tests.support.lab.marking_controller --config FILE
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from unittest.mock import patch

import typer

from controller.config import Config, load
from controller.core.messages import NO_EFFECTS, Arrange, Effects, Extension, Work, at_once
from controller.core.state import State
from controller.serving.serve import serve
from signalbox.jobs.spec import JobId

CLASSES = (10, 18)
TICKS = 5


class Changing(Extension):
    def __init__(self, state: State) -> None:
        self._state = state
        self._ticks = 0
        self._dscp: Mapping[JobId, int] = {}

    def tick(self, arrange: Arrange, now: float) -> Effects:  # noqa: ARG002
        self._ticks += 1
        if self._ticks % TICKS:
            return NO_EFFECTS
        self._dscp = dict.fromkeys(self._state.jobs.jobs, CLASSES[self._ticks // TICKS % 2])
        return at_once(Work.RULES)

    @property
    def dscp(self) -> Mapping[JobId, int]:
        return self._dscp


def main(config: Annotated[Path, typer.Option()]) -> None:
    def changing(_config: Config, state: State, _now: float) -> Extension:
        return Changing(state)

    with patch("controller.control_loop.configured", changing):
        raise typer.Exit(serve(load(config)))


if __name__ == "__main__":
    typer.run(main)
