"""Measured traffic decides the demands of the planner, the pairs of hosts that are counted, and the efficiencies."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from itertools import permutations, product

import pytest

from controller.api.convert_explain import explain_message
from controller.config import JobsConfig
from controller.core.messages import Message, Tick
from controller.demand.job_demand import DemandSource, JobDemand
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import DeregisterJob, RegisterJob, ReportIterations, UpdateJob
from controller.planning.analysis.dispatch import analyse
from controller.planning.analysis.messages import Analyse, AnalyseJob, Explain, JobAnalysis
from controller.planning.messages import SetMode
from controller.planning.problem import FlowId
from controller.tables.messages import Counters, RuleCount
from controller.tables.rules import FlowKey, Table
from signalbox.errors import InvalidInput
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import AlarmKind, Mode
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job
from tests.support.long_cases import with_long
from tests.support.three_rings import CONFIG, started

Pair = tuple[str, str]

HOSTS = [f"10.0.{leaf}.1" for leaf in range(1, 5)]
FORWARD = {(a, b) for a, b in zip(HOSTS, HOSTS[1:] + HOSTS[:1], strict=True)}
BACKWARD = {(b, a) for a, b in FORWARD}
STEP_S = 0.5


class Sending(FakeFabric):
    """Fabric whose hosts send at half of their rate, in full segments that are acknowledged.

    Switches count by their rules."""

    def __init__(self) -> None:
        super().__init__(leaves=4, spines=4, hosts_per_leaf=1)
        self._sent: Counter[Pair] = Counter()
        self._acknowledged: Counter[Pair] = Counter()
        self._since: dict[FlowKey, tuple[int, int]] = {}

    def carry(self, seconds: float, pairs: set[Pair]) -> None:
        for step in range(round(seconds / STEP_S)):
            self.run(STEP_S)
            for src, dst in pairs:
                segments = int(0.5 * FABRIC_BPS * STEP_S / 8 / 1514)
                self._sent[src, dst] += segments
                self._acknowledged[dst, src] += segments // 2
            if step % 4 == 0:
                self._poll()

    def _poll(self) -> None:
        for switch in self.switches.values():
            flows = {}
            for key in switch.flows:
                match = key.match
                if key.table != Table.PINNED or not match.ip_src or not match.ip_dst:
                    continue
                pair = match.ip_src.address, match.ip_dst.address
                total = self._sent[pair] * 1514 + self._acknowledged[pair] * 66
                packets = self._sent[pair] + self._acknowledged[pair]
                start = self._since.setdefault(key, (total, packets))
                flows[key] = RuleCount(total - start[0], packets - start[1])
            self.send(Counters(switch.dpid, self.now, {}, flows))

    @property
    def demand(self) -> JobDemand:
        return self.status.demands[JobId("job")]

    def pinned(self) -> set[Pair]:
        return {flow.pair for flow, route in self.job().routes.items() if route}


@pytest.fixture
def fabric() -> Sending:
    return started(Sending())


def observed() -> JobSpec:
    return JobSpec.parse({"job_id": "job", "endpoints": HOSTS})


def test_an_observed_job_is_counted_learnt_and_pinned_and_then_counted_no_more(fabric: Sending) -> None:
    fabric.send(RegisterJob(observed()))
    fabric.run(0.5)
    assert fabric.learning_rules() == 12
    assert fabric.job().state == "ecmp"
    fabric.carry(10, BACKWARD)
    assert fabric.demand.source is DemandSource.MEASURED
    assert fabric.pinned() == BACKWARD
    fabric.carry(10, BACKWARD)
    assert fabric.learning_rules() == 0
    assert fabric.status.plan_demand_source == {"job": DemandSource.MEASURED}
    assert not fabric.status.alarms.values()


def test_a_ring_that_runs_the_other_way_raises_an_alarm_and_is_planned_as_it_runs(fabric: Sending) -> None:
    fabric.send(RegisterJob(ring_job("job", HOSTS, lease_s=600)))
    fabric.run(1)
    assert fabric.pinned() == FORWARD
    fabric.carry(15, BACKWARD)
    (alarm,) = (alarm for alarm in fabric.status.alarms.values() if alarm.kind is AlarmKind.DEMAND_DIFFERS)
    assert alarm.subject == "job"
    fabric.carry(20, BACKWARD)
    assert fabric.pinned() == BACKWARD
    assert fabric.learning_rules() == 0
    fabric.carry(30, FORWARD)
    assert fabric.pinned() == FORWARD
    assert not fabric.status.alarms.values()
    assert fabric.demand.source is DemandSource.CONFIRMED


def test_learning_moves_no_pin_and_loses_no_packet(fabric: Sending) -> None:
    fabric.send(RegisterJob(ring_job("known", HOSTS, lease_s=600)))
    fabric.run(1)
    fabric.send(DeregisterJob(JobId("known")))
    fabric.send(RegisterJob(ring_job("other", HOSTS[:2], lease_s=600)))
    fabric.run(1)
    fabric.after_each_mod = lambda: [fabric.trace(a, b) or pytest.fail(f"{a} > {b}") for a, b in permutations(HOSTS, 2)]
    fabric.send(RegisterJob(observed()))
    fabric.carry(20, BACKWARD)
    assert all(fabric.status.jobs[JobId("other")].routes.values())
    assert not fabric.demand.pairs & {(HOSTS[0], HOSTS[1]), (HOSTS[1], HOSTS[0])}, "they are the other job's"


def test_an_observed_job_waits_for_a_host_that_sends_nothing_while_the_others_are_learnt(fabric: Sending) -> None:
    fabric.send(RegisterJob(JobSpec.parse({"job_id": "job", "endpoints": [*HOSTS, "10.0.9.9"]})))
    fabric.run(1)
    counted = fabric.learning_rules()
    assert counted
    fabric.carry(6, BACKWARD)
    assert fabric.demand.virtual_links
    assert fabric.learning_rules() == counted, "they are still counted"
    fabric.carry(14, BACKWARD)
    assert fabric.demand.source is DemandSource.MEASURED
    (job,) = fabric.status.jobs.values()
    assert (job.state, job.missing_hosts) == ("pending", ("10.0.9.9",))
    assert (AlarmKind.HOSTS_MISSING, "job") in fabric.status.alarms


def test_an_observed_job_with_too_many_pairs_is_refused_with_the_way_out() -> None:
    fabric = Sending()
    fabric.start(CONFIG.model_copy(update={"jobs": JobsConfig(max_learning_rules=11)}))
    fabric.send(RegisterJob(observed()))
    (reply,) = fabric.replies
    assert isinstance(reply.value, InvalidInput)
    assert "12 pairs" in str(reply.value)
    assert "jobs.max_learning_rules" in str(reply.value)
    assert not fabric.status.jobs


def test_learnt_flows_survive_a_restart_without_a_plan_in_between(fabric: Sending) -> None:
    fabric.send(RegisterJob(observed()))
    fabric.carry(20, BACKWARD)
    routes = dict(fabric.job().routes)
    fabric.start(CONFIG)
    fabric.run(3)
    assert {flow: route for flow, route in fabric.job().routes.items() if route} == routes
    fabric.carry(20, BACKWARD)
    assert fabric.pinned() == BACKWARD
    assert routes.keys() == {FlowId(*pair) for pair in BACKWARD}


# ---- an efficiency never includes iterations from before a change of the routes or the bytes of a job


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
        started(self)
        whole = round(2 * iteration_s * COUNTED * announced * len(HOSTS) / (2 * (len(HOSTS) - 1)))
        ring = [{"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": whole}]
        self.send(RegisterJob(ring_job("job", HOSTS, lease_s=600, collectives=ring)))
        self._iterations = 0

    def train(self, seconds: float) -> Iterator[float]:
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
        published = self.job().efficiency_measured
        self.send(Tick())
        assert (self.asked or 0.0) == published
        return published


def test_routes_that_change_begin_a_new_measurement() -> None:
    training = Training(1.0)
    assert list(training.train(10))[-1] > 0
    for port in (1, 2):
        training.cut(Dpid(1), PortNo(port))
    training.run(0.2)
    changed = [routes for routes in training.job().routes.values() if routes]
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
def test_bytes_that_turn_out_to_be_others_begin_a_new_measurement_and_are_explained(
    announced: float, factor: float
) -> None:
    """Before the demand is measured, no sentence says "routes do not explain" the measured efficiency.

    An efficiency above 105 % must come with the sentence that the job announced too much. The job sends at half of the
    rate of its hosts."""
    training = Training(announced)
    training.run(1)
    first, message = explained(training)
    assert (
        first[0]
        == "Counters have not yet confirmed the announcement of job 'job'. What follows rests on the announcement."
    )
    assert message.demand.source == pb.DEMAND_SOURCE_DECLARED
    found: list[float] = []
    for efficiency in training.train(40):
        if training.demand.source is DemandSource.MEASURED:
            found.append(efficiency)
        else:
            assert efficiency in (0.0, pytest.approx(announced * 0.5, rel=0.06))
        answer, message = explained(training)
        assert not any("routes do not explain" in each for each in answer if message.demand.source != MEASURED)
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
    assert f"for the bytes that switches count) is {message.efficiency_measured:.1%}" in answer[-1]
    assert message.efficiency_measured == pytest.approx(found[-1]) == pytest.approx(0.5, rel=0.06)
    assert found[0] == 0.0, "no iteration has begun since the bytes changed"
    assert all(efficiency == 0.0 or efficiency == pytest.approx(0.5, rel=0.3) for efficiency in found)


@pytest.mark.parametrize(
    ("announced", "iteration_s"), with_long([(0.5, 3.0), (2.0, 5.0)], product((0.5, 2.0), (1.5, 3.0, 5.0)))
)
def test_half_or_double_the_bytes_are_never_confirmed(announced: float, iteration_s: float) -> None:
    training = Training(announced, iteration_s)
    for _ in training.train(60):
        assert training.demand.source in (DemandSource.DECLARED, DemandSource.MEASURED)
