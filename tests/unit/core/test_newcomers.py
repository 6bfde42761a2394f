"""Unknown jobs begin to send beside known ones, and get routes at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import pytest

from controller.config import JobsConfig, PlanningConfig
from controller.demand.job_demand import DemandSource, JobDemand
from controller.jobs.messages import DeregisterJob, RegisterJob, ReportConnections
from controller.planning.problem import FlowId, Route
from controller.tables.flow_tables import LEARNING_PRIORITY
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.busy_fabric import COUNTERS, STEP_S, BusyFabric, Ring
from tests.support.fake_fabric import FABRIC_BPS, ring_job
from tests.support.long_cases import with_long
from tests.support.three_rings import CONFIG, RINGS, register, started

NEWCOMER = JobId("newcomer")
HOSTS = [f"10.0.{leaf}.4" for leaf in (1, 2, 3, 4)]
PAIRS = {flow.pair for flow in Ring(HOSTS).flows}


class Newcomers(BusyFabric):
    """Fabric where three known rings use three of four spines; counters lag."""

    def __init__(self, max_learning_rules: int = 4032, planning_s: float = 10.0) -> None:
        super().__init__(hosts_per_leaf=4, seed=1)
        self.lag_s = 0.5
        jobs, planning = JobsConfig(max_learning_rules=max_learning_rules), PlanningConfig(interval_s=planning_s)
        self.config = CONFIG.model_copy(update={"jobs": jobs, "planning": planning})
        started(self, config=self.config)
        self.all_speak()
        register(self, 0, 1, 2, lease_s=600)
        self.known = [Ring(ips) for ips in RINGS]
        self.rings = [*self.known]
        self.carry(4)

    def observe(self, **more: object) -> None:
        spec = {"job_id": NEWCOMER, "endpoints": HOSTS, "lease_s": 600, **more}
        self.send(RegisterJob(JobSpec.parse(spec)))

    def begin(self, after_s: float, ring: Sequence[str] = HOSTS, within_s: float = 2.0, **more: object) -> None:
        """Let the newcomer register, begin to send, and have routes for full rate within so many seconds."""
        self.observe(**more)
        self.carry(after_s)
        self.rings.append(Ring(ring))
        assert self.until_fast(self.rings) <= within_s

    @property
    def demand(self) -> JobDemand:
        return self.status.demands[NEWCOMER]

    def has(self, source: DemandSource) -> bool:
        """Return whether the newcomer is planned by demands from this source."""
        return self.demand.source is source

    @property
    def pinned(self) -> set[tuple[str, str]]:
        return {flow.pair for flow, route in self.status.jobs[NEWCOMER].routes.items() if route}

    def slowest(self, rings: list[Ring]) -> float:
        """Return the rate of the slowest flow of these rings, as a share of the link rate."""
        rates = self.rates_bps()
        return min(rates[flow] for ring in rings for flow in ring.flows) / FABRIC_BPS

    def until_fast(self, rings: list[Ring], within_s: float = 10.0) -> float:
        """Wait until all flows of these rings send at full rate, and return the seconds that it took."""
        since = self.now
        while self.slowest(rings) < 1.0:
            assert self.now - since < within_s
            self.carry(STEP_S)
        return self.now - since

    def routes_of_known(self) -> Mapping[FlowId, Route]:
        known = (job for job_id, job in self.status.jobs.items() if job_id != NEWCOMER)
        return {flow: route for job in known for flow, route in job.routes.items() if route}

    def moves(self, seconds: float) -> Iterator[int]:
        """Yield the number of known flows that moved in each step of this time."""
        seen = [self.routes_of_known()]
        for _ in range(round(seconds / STEP_S)):
            self.carry(STEP_S)
            seen.append(self.routes_of_known())
        for before, now in pairwise(seen):
            yield sum(now.get(flow) != route for flow, route in before.items())

    def learning_rules(self) -> int:
        return sum(key.priority == LEARNING_PRIORITY for switch in self.switches.values() for key in switch.flows)


@pytest.mark.parametrize("moment", with_long([0.0, 0.75, 1.5], [quarter / 4 for quarter in range(8)]))
def test_an_observed_job_has_routes_within_two_seconds_of_its_first_byte(moment: float) -> None:
    """The job begins at various seconds since the last poll of the switches."""
    fabric = Newcomers()
    fabric.observe()
    fabric.carry(2 + moment)
    fabric.rings.append(Ring(HOSTS))
    assert fabric.slowest(fabric.rings) < 1, "it is hashed over full links"
    assert fabric.until_fast(fabric.rings) <= 2
    assert fabric.has(DemandSource.PROVISIONAL)
    assert fabric.demand.pairs == fabric.pinned == PAIRS
    assert not any(fabric.moves(12))
    assert fabric.has(DemandSource.MEASURED)
    assert fabric.slowest(fabric.rings) == 1


def test_without_more_polls_routes_follow_the_next_poll_of_each_switch() -> None:
    fabric = Newcomers()
    fabric._poll_soon = lambda: None  # type: ignore[method-assign]
    fabric.begin(2.25, within_s=3)


def test_known_flows_move_once_where_the_newcomer_needs_their_links() -> None:
    fabric = Newcomers()
    fabric.begin(2.5, [HOSTS[0], HOSTS[2], HOSTS[1], HOSTS[3]])
    assert not any(fabric.moves(15))
    assert fabric.slowest(fabric.rings) == 1


def test_a_ring_after_a_broadcast_is_routed_as_if_there_were_none() -> None:
    """A training program sends its parameters to all ranks first."""
    fabric = Newcomers()
    fabric.observe()
    fabric.carry(2.5)
    star = {FlowId(HOSTS[0], ip): FABRIC_BPS / 3 for ip in HOSTS[1:]}
    fabric.stray_bps = star
    fabric.carry(2)
    assert fabric.demand.pairs == {flow.pair for flow in star}
    fabric.stray_bps = {}
    fabric.rings.append(Ring(HOSTS))
    assert fabric.until_fast(fabric.rings) <= 2
    fabric.carry(20)
    assert fabric.slowest(fabric.rings) == 1
    assert fabric.demand.pairs == PAIRS


def test_a_newcomer_that_leaves_while_it_is_learnt_leaves_nothing_behind() -> None:
    fabric = Newcomers()
    while fabric.learning_rules():
        fabric.carry(1)  # the known jobs are confirmed
    for _ in range(2):
        fabric.begin(1)
        assert fabric.soon
        fabric.send(DeregisterJob(NEWCOMER))
        fabric.rings.pop()
        fabric.carry(1)
        assert not fabric.soon
        assert fabric.learning_rules() == 0
        assert fabric.slowest(fabric.known) == 1
        assert NEWCOMER not in fabric.status.demands


def test_a_restart_while_a_job_is_learnt_keeps_its_pins_and_learns_it_again() -> None:
    fabric = Newcomers()
    fabric.begin(1)
    assert fabric.saved.measured == {}
    fabric.start(fabric.config)
    for _ in range(60):
        fabric.carry(STEP_S)
        assert fabric.slowest(fabric.rings) == 1
    assert fabric.has(DemandSource.MEASURED)
    assert fabric.saved.measured[NEWCOMER].pairs == fabric.pinned


def test_pairs_that_come_later_are_added_and_what_was_measured_stays_saved() -> None:
    fabric = Newcomers()
    fabric.observe()
    fabric.carry(1)
    fabric.stray_bps = {FlowId(HOSTS[0], HOSTS[1]): FABRIC_BPS / 2}
    fabric.carry(7)
    assert fabric.has(DemandSource.MEASURED)
    before = fabric.saved.measured
    fabric.stray_bps |= {FlowId(HOSTS[2], HOSTS[3]): FABRIC_BPS / 2}
    fabric.carry(1.5)
    assert fabric.has(DemandSource.PROVISIONAL)
    assert fabric.pinned == {(HOSTS[0], HOSTS[1]), (HOSTS[2], HOSTS[3])}
    assert fabric.saved.measured == before
    fabric.carry(15)
    assert fabric.has(DemandSource.MEASURED)
    assert fabric.demand.pairs == {(HOSTS[0], HOSTS[1]), (HOSTS[2], HOSTS[3])}


def test_without_rules_for_learning_it_is_hashed_until_there_are_some() -> None:
    fabric = Newcomers(max_learning_rules=12)
    idle = {"job_id": "idle", "endpoints": RINGS[0], "lease_s": 600}
    for job_id in ("job0", "job1"):
        fabric.send(DeregisterJob(JobId(job_id)))
    fabric.send(RegisterJob(JobSpec.parse(idle)))
    fabric.observe()
    fabric.carry(1)
    fabric.rings = [fabric.known[2], Ring(HOSTS)]
    fabric.carry(6)
    assert (fabric.demand.source, fabric.demand.learning) == (DemandSource.LEARNING, False)
    fabric.send(DeregisterJob(JobId("idle")))
    assert fabric.until_fast(fabric.rings) <= 3
    assert fabric.demand.learning


def test_of_connections_that_are_reported_those_that_carry_traffic_have_routes() -> None:
    fabric = Newcomers()
    fabric.observe(reports_connections=True)
    for number, ip in enumerate(HOSTS):
        others = [other for other in HOSTS if other != ip]
        found = frozenset(Connected(ip, 1000 + number, other, 2000 + HOSTS.index(other)) for other in others)
        fabric.send(ReportConnections(NEWCOMER, ip, found))
    fabric.carry(2)
    fabric.rings.append(Ring(HOSTS))
    assert fabric.until_fast(fabric.rings) <= 2.5
    assert fabric.demand.pairs == PAIRS


def test_pairs_that_an_announced_job_did_not_announce_have_routes_while_they_are_learnt() -> None:
    fabric = Newcomers()
    fabric.begin(2, transfers=[{"src": 0, "dst": 2, "bytes_per_iteration": 10**6}])
    assert fabric.has(DemandSource.PROVISIONAL)
    assert fabric.demand.pairs == {(HOSTS[0], HOSTS[2]), *PAIRS}


def test_the_end_of_learning_a_right_announcement_starts_no_plan() -> None:
    fabric = Newcomers(planning_s=600)
    assert fabric.learning_rules()
    fabric.carry(COUNTERS.interval_s)
    plans = fabric.status.plans_total
    while fabric.learning_rules():
        fabric.carry(STEP_S)
    fabric.carry(COUNTERS.interval_s)
    assert fabric.status.plans_total == plans


def test_hosts_of_two_new_jobs_have_one_route_per_pair() -> None:
    fabric = Newcomers()
    fabric.observe()
    fabric.send(RegisterJob(JobSpec.parse({"job_id": "twin", "endpoints": HOSTS, "lease_s": 600})))
    fabric.carry(2)
    fabric.rings.append(Ring(HOSTS))
    assert fabric.until_fast(fabric.rings) <= 2
    planned = [job.pairs for job_id, job in fabric.loop.derived.jobs().items() if job_id in (NEWCOMER, "twin")]
    assert sorted(map(len, planned)) == [0, 4]
    fabric.send(DeregisterJob(NEWCOMER))
    assert fabric.until_fast(fabric.rings) <= 2
    assert fabric.loop.derived.jobs()[JobId("twin")].pairs == PAIRS


def test_a_job_that_announces_pairs_of_one_that_is_learnt_gets_them_with_their_routes() -> None:
    fabric = Newcomers()
    fabric.begin(1)
    fabric.send(RegisterJob(ring_job("owner", HOSTS, lease_s=600)))
    for _ in range(40):
        fabric.carry(STEP_S)
        assert fabric.slowest(fabric.rings) == 1
    assert len(fabric.status.jobs[JobId("owner")].routes) == 4
    assert not fabric.loop.derived.jobs()[NEWCOMER].pairs


def test_only_the_job_whose_host_sends_more_than_announced_is_learnt_again() -> None:
    fabric = Newcomers()
    while fabric.learning_rules():
        fabric.carry(1)  # the known jobs are confirmed
    fabric.stray_bps = {FlowId(RINGS[0][0], RINGS[0][2]): FABRIC_BPS / 4}
    while not fabric.learning_rules():
        fabric.carry(1)
    assert [job_id for job_id, demand in fabric.status.demands.items() if demand.learning] == ["job0"]
