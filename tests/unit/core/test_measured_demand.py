"""Measured traffic of jobs decides the demands of the planner, and which pairs of hosts are counted."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

from controller.config import Config, FabricConfig, JobsConfig
from controller.jobs.demand import DemandSource, JobDemand
from controller.jobs.messages import DeregisterJob, RegisterJob
from controller.planning.problem import FlowId
from controller.tables.messages import Counters, RuleCount
from controller.tables.pinned_table import LEARNING_PRIORITY
from controller.tables.rules import FlowKey, Table
from signalbox.errors import InvalidInput
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.words import AlarmKind
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job

Pair = tuple[str, str]

CONFIG = Config(fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=FABRIC_BPS))
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

    def learning_rules(self) -> int:
        return sum(key.priority == LEARNING_PRIORITY for switch in self.switches.values() for key in switch.flows)

    @property
    def demand(self) -> JobDemand:
        return self.status.demands[JobId("job")]

    def pinned(self) -> set[Pair]:
        return {flow.pair for flow, route in self.status.jobs[JobId("job")].routes.items() if route}


@pytest.fixture
def fabric() -> Sending:
    fabric = Sending()
    fabric.start(CONFIG)
    fabric.run(3)
    return fabric


def observed() -> JobSpec:
    return JobSpec.parse({"job_id": "job", "endpoints": HOSTS})


def test_an_observed_job_is_counted_learnt_and_pinned_and_then_counted_no_more(fabric: Sending) -> None:
    fabric.send(RegisterJob(observed()))
    fabric.run(0.5)
    assert fabric.learning_rules() == 12
    assert fabric.status.jobs[JobId("job")].state == "ecmp"
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
    fabric.carry(20, BACKWARD)
    assert fabric.demand.source is DemandSource.MEASURED
    (job,) = fabric.status.jobs.values()
    assert (job.state, job.missing_hosts) == ("pending", ("10.0.9.9",))
    assert (AlarmKind.HOSTS_MISSING, "job") in fabric.status.alarms


def test_the_hosts_that_are_there_of_an_observed_job_are_still_counted_when_they_are_learnt(fabric: Sending) -> None:
    waiting = ["10.0.9.7", "10.0.9.8"]
    fabric.send(RegisterJob(JobSpec.parse({"job_id": "job", "endpoints": [*HOSTS[:2], *waiting]})))
    fabric.run(1)
    counted = fabric.learning_rules()
    assert counted
    fabric.carry(6, {(HOSTS[0], HOSTS[1])})
    assert fabric.demand.virtual_links
    assert fabric.learning_rules() == counted


def test_a_job_that_leaves_while_it_is_learnt_takes_its_rules_along(fabric: Sending) -> None:
    fabric.send(RegisterJob(observed()))
    fabric.carry(3, BACKWARD)
    fabric.send(DeregisterJob(JobId("job")))
    fabric.run(1)
    assert fabric.learning_rules() == 0
    assert fabric.status.demands == {}


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
    routes = dict(fabric.status.jobs[JobId("job")].routes)
    fabric.start(CONFIG)
    fabric.run(3)
    assert {flow: route for flow, route in fabric.status.jobs[JobId("job")].routes.items() if route} == routes
    fabric.carry(20, BACKWARD)
    assert fabric.pinned() == BACKWARD
    assert routes.keys() == {FlowId(*pair) for pair in BACKWARD}
