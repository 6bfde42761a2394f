"""Fake fabrics whose switches, planner or disk answer late."""

from collections.abc import Callable
from typing import Any

from controller.core.messages import Command, Message
from controller.jobs.messages import StateSaved
from controller.planning.messages import SolvePlan
from controller.planning.plan import Planned
from tests.support.fake_fabric import FakeFabric


class LateAnswers(FakeFabric):
    """Fabric that holds back the answers for which ``is_late`` is true, until ``deliver`` is called.

    ``asked``: all requests for plans."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.is_late: Callable[[Message], bool] = lambda _: False
        self.late: list[Message] = []
        self.asked: list[SolvePlan] = []

    def _carry_out(self, command: Command) -> list[Message]:
        if isinstance(command, SolvePlan):
            self.asked.append(command)
        answers = super()._carry_out(command)
        late = [answer for answer in answers if self.is_late(answer)]
        self.late += late
        return [answer for answer in answers if answer not in late]

    def deliver(self) -> None:
        waiting, self.late = self.late, []
        for answer in waiting:
            self.send(answer)


class SlowSolver(LateAnswers):
    """Fabric whose planner answers repairs at once, and plans when ``solve`` is called."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.is_late = lambda answer: isinstance(answer, Planned) and not answer.repair

    @property
    def solving(self) -> list[Planned]:
        return [answer for answer in self.late if isinstance(answer, Planned)]

    def solve(self) -> None:
        self.deliver()


class SlowDisk(LateAnswers):
    """Fabric whose commits are acknowledged, the oldest first, when ``answer`` is called."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.is_late = lambda answer: isinstance(answer, StateSaved)

    def answer(self) -> None:
        self.send(self.late.pop(0))
