"""An efficiency never includes iterations from before a change of the routes or the bytes of a job."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

import pytest

from controller.api.convert_explain import explain_message
from controller.config import Config, FabricConfig
from controller.core.messages import Message, Tick
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.demand import DemandSource
from controller.jobs.messages import RegisterJob, ReportIterations, UpdateJob
from controller.planning.analysis.analyse import analyse
from controller.planning.analysis.requests import Analyse, AnalyseJob, Explain
from controller.planning.analysis.results import JobAnalysis
from controller.planning.messages import SetMode
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import Mode
from tests.support.fake_fabric import FABRIC_BPS, ring_job
from tests.unit.core.test_measured_demand import FORWARD, HOSTS, Sending

CONFIG = Config(fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=FABRIC_BPS))
JOB = JobId("job")
MEASURED = pb.DEMAND_SOURCE_MEASURED
COUNTED = 150_000
"""Bytes that each host sends to the next one in an iteration of 0.5 s, at half of its rate."""


class Training(Sending):
    """Ring that trains all the time, and reports each iteration at its end.

    ``announced``: announced bytes as a multiple of the sent bytes."""

    def __init__(self, announced: float, iteration_s: float = 0.5) -> None:
        super().__init__()
        self._iteration_s = iteration_s
        self.asked: float | None = None
        self.start(CONFIG)
        self.run(3)
        whole = round(2 * iteration_s * COUNTED * announced * len(HOSTS) / (2 * (len(HOSTS) - 1)))
        ring = [{"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": whole}]
        self.send(RegisterJob(ring_job("job", HOSTS, lease_s=600, collectives=ring)))
        self._iterations = 0

    def train(self, seconds: float) -> Iterator[float]:
        """Train, and yield the published efficiency after every iteration."""
        for _ in range(round(seconds / self._iteration_s)):
            self.carry(self._iteration_s, FORWARD)
            took_s = self._iteration_s
            self.send(ReportIterations(JOB, (IterationTime(self._iterations, took_s, took_s),)))
            self._iterations += 1
            yield self.efficiency

    def send(self, message: Message | UpdateJob) -> None:
        """Send the message and an ``Explain`` in one batch.

        The answer never uses iterations from before a change of the bytes."""
        inbox = deque([self._from_owner(message)])
        while inbox:
            before = self.loop.derived.jobs().get(JOB)
            for command in self.loop.handle([inbox.popleft(), Explain(JOB)], self.now):
                if isinstance(command, Analyse):
                    assert isinstance(command.request, AnalyseJob)
                    self.asked = command.request.efficiency_measured
                else:
                    inbox.extend(self._carry_out(command))
            if before and before.virtual_links is not self.loop.derived.jobs()[JOB].virtual_links:
                assert self.asked is None

    @property
    def efficiency(self) -> float:
        """Measured efficiency of the status, checked against the last answer to ``Explain``."""
        published = self.status.jobs[JOB].efficiency_measured
        self.send(Tick())
        assert (self.asked or 0.0) == published
        return published


@pytest.mark.parametrize("announced", [0.5, 2.0])
def test_bytes_that_turn_out_to_be_others_begin_a_new_measurement(announced: float) -> None:
    training = Training(announced)
    of_announced = announced * 0.5  # the job sends at half of the rate of its hosts
    found: list[float] = []
    for efficiency in training.train(40):
        if training.demand.source is DemandSource.MEASURED:
            found.append(efficiency)
        else:
            assert efficiency in (0.0, pytest.approx(of_announced, rel=0.06))
    assert found[0] == 0.0, "no iteration has begun since the bytes changed"
    assert found[-1] == pytest.approx(0.5, rel=0.06)
    assert all(efficiency == 0.0 or efficiency == pytest.approx(0.5, rel=0.3) for efficiency in found)


def test_routes_that_change_begin_a_new_measurement() -> None:
    training = Training(1.0)
    assert list(training.train(10))[-1] > 0
    for port in (1, 2):
        training.cut(Dpid(1), PortNo(port))
    training.run(0.2)
    changed = [routes for routes in training.status.jobs[JOB].routes.values() if routes]
    assert changed
    assert training.efficiency == 0.0
    found = list(training.train(10))
    assert found[0] == 0.0, "it began before the routes were confirmed"
    assert found[-1] > 0
    training.send(SetMode(Mode.ECMP))
    training.run(0.2)
    assert training.efficiency == 0.0, "its flows are hashed now"


def explained(training: Training) -> tuple[list[str], pb.ExplainResponse]:
    (command,) = training.loop.handle([Explain(JOB)], training.now)
    assert isinstance(command, Analyse)
    found = analyse(command.request)
    assert isinstance(found, JobAnalysis)
    message = explain_message(found)
    return list(message.answer), message


@pytest.mark.parametrize(("announced", "factor"), [(0.5, 2.0), (2.0, 0.5)])
def test_explain_says_that_bytes_are_unconfirmed_and_then_that_they_are_wrong(announced: float, factor: float) -> None:
    """No sentence may say that the difference is not the routing while the demand is not measured.

    An efficiency above 105 % must come with the sentence that the job announced too much."""
    training = Training(announced)
    training.run(1)
    first, message = explained(training)
    assert (
        first[0]
        == "Counters have not yet confirmed the announcement of job 'job'. What follows rests on the announcement."
    )
    assert message.demand.source == pb.DEMAND_SOURCE_DECLARED
    for _ in training.train(40):
        answer, message = explained(training)
        assert not any("not the routing" in each for each in answer if message.demand.source != MEASURED)
        assert message.demand.source != pb.DEMAND_SOURCE_CONFIRMED
        assert message.efficiency_measured <= 1.05 or "the job announced too much" in answer[-1]
    assert message.demand.source == MEASURED
    assert message.demand.factor == pytest.approx(factor, rel=0.1)
    said = re.fullmatch(
        r"The announcement of job 'job' is wrong: all announced pairs carry ([\d.]+) times what was announced\. "
        r"What follows rests on the bytes that switches count\.",
        answer[0],
    )
    assert said
    assert float(said[1]) == pytest.approx(factor, rel=0.1)
    assert f"of the bytes that switches count, is {message.efficiency_measured:.1%}" in answer[-1]
    assert message.efficiency_measured == pytest.approx(0.5, rel=0.06), "it sends at half of its hosts' rate"


@pytest.mark.parametrize("announced", [0.5, 2.0])
@pytest.mark.parametrize("iteration_s", [1.5, 3.0, 5.0])
def test_half_or_double_the_bytes_are_never_confirmed(announced: float, iteration_s: float) -> None:
    training = Training(announced, iteration_s)
    for _ in training.train(60):
        assert training.demand.source in (DemandSource.DECLARED, DemandSource.MEASURED)
