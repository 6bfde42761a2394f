"""A fake fabric whose planner takes as long as the test says."""

from __future__ import annotations

from typing import Any

from controller.core.messages import Command, Message
from controller.planning.messages import Planned
from tests.support.fake_fabric import FakeFabric


class SlowSolver(FakeFabric):
    """Repairs are answered at once, plans when ``solve`` is called."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.solving: list[Planned] = []

    def _carry_out(self, command: Command) -> list[Message]:
        answers = super()._carry_out(command)
        plans = [answer for answer in answers if isinstance(answer, Planned) and not answer.repair]
        self.solving += plans
        return [answer for answer in answers if answer not in plans]

    def solve(self) -> None:
        waiting, self.solving = self.solving, []
        for answer in waiting:
            self.send(answer)
