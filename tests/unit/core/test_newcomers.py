"""Jobs that begin to send, alternate between patterns or register while they train; plans follow what they send."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product

import pytest

from controller.config import CountersConfig, PlanningConfig
from controller.demand.job_demand import DemandSource, JobDemand
from controller.fabric.messages import DrainParts, UndrainParts
from controller.fabric.topology import LinkId
from controller.jobs.messages import DeregisterJob, RegisterJob, ReportConnections
from controller.planning.messages import SetMode
from controller.planning.plan import Plan
from controller.planning.problem import FlowId, Route
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.words import Mode
from tests.support.busy_fabric import COUNTERS, STEP_S, BusyFabric, Ring
from tests.support.fake_fabric import FABRIC_BPS, ring_job
from tests.support.long_cases import with_long
from tests.support.three_rings import CONFIG, RINGS, register, started

NEWCOMER = JobId("newcomer")
HOSTS = [f"10.0.{leaf}.4" for leaf in (1, 2, 3, 4)]
PAIRS = {flow.pair for flow in Ring(HOSTS).flows}


class Newcomers(BusyFabric):
    """Fabric where three known rings use three of four spines; counters lag."""

    def __init__(self, planning_s: float = 10.0) -> None:
        super().__init__(hosts_per_leaf=4, seed=1)
        self.lag_s = 0.5
        self.config = CONFIG.model_copy(update={"planning": PlanningConfig(interval_s=planning_s)})
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
        """Let the newcomer register and begin to send; assert that it has routes for full rate within ``within_s``."""
        self.observe(**more)
        self.carry(after_s)
        self.rings.append(Ring(ring))
        assert self.until_fast(self.rings) <= within_s

    @property
    def demand(self) -> JobDemand:
        return self.status.demands[NEWCOMER]

    def has(self, source: DemandSource) -> bool:
        return self.demand.source is source

    @property
    def pinned(self) -> set[tuple[str, str]]:
        return {flow.pair for flow, route in self.status.jobs[NEWCOMER].routes.items() if route}

    def slowest(self, rings: list[Ring]) -> float:
        """Return the rate of the slowest flow of these rings, as a share of the link rate."""
        rates = self.rates_bps()
        return min(rates[flow] for ring in rings for flow in ring.flows) / FABRIC_BPS

    def until_fast(self, rings: list[Ring]) -> float:
        """Wait until all flows of these rings send at full rate, and return the seconds that it took."""
        since = self.now
        while self.slowest(rings) < 1.0:
            assert self.now - since < 10
            self.carry(STEP_S)
        return self.now - since

    def routes_of_known(self) -> Mapping[FlowId, Route]:
        known = (job for job_id, job in self.status.jobs.items() if job_id != NEWCOMER)
        return {flow: route for job in known for flow, route in job.routes.items() if route}

    def moves(self, seconds: float) -> Iterator[int]:
        seen = [self.routes_of_known()]
        for _ in range(round(seconds / STEP_S)):
            self.carry(STEP_S)
            seen.append(self.routes_of_known())
        for before, now in pairwise(seen):
            yield sum(now.get(flow) != route for flow, route in before.items())


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


# ---- jobs that alternate between a ring and an all-to-all: once both are known, no flow moves and no rule changes


PERIOD_S = 40


class AllToAll(Ring):
    @property
    def flows(self) -> list[FlowId]:
        return [FlowId(*pair) for pair in permutations(self.ips, 2)]


class Started(BusyFabric):
    """Running controller that knows all hosts.

    ``rule_changes``: number of rule changes since the start."""

    def __init__(self, leaves: int, spines: int) -> None:
        super().__init__(leaves, spines, hosts_per_leaf=4, seed=1)
        self.lag_s = 0.5
        started(self)
        self.all_speak()
        self.rule_changes = 0
        self.after_each_mod = self._count_rule_change

    def _count_rule_change(self) -> None:
        self.rule_changes += 1


class Alternating(Started):
    """Fabric with three jobs of one host per leaf, which announce rings."""

    def __init__(self) -> None:
        super().__init__(leaves=4, spines=4)
        register(self, 0, 1, 2, lease_s=6000)
        self.carry(1)

    def period(self, kind: type[Ring]) -> None:
        self.rings = [kind(ips) for ips in RINGS]
        self.carry(PERIOD_S)

    def at_full_rate(self) -> bool:
        """Return whether every flow gets its share of its host's link."""
        rates = self.rates_bps()
        return all(rates[flow] * len(ring.flows) / 4 >= 0.99 * FABRIC_BPS for ring in self.rings for flow in ring.flows)


def test_jobs_that_alternate_move_no_flow_and_change_no_rule_after_the_second_period() -> None:
    fabric = Alternating()
    for kind in (Ring, AllToAll, Ring):
        fabric.period(kind)
    moved, plans, changes = fabric.status.moved_flows_total, fabric.status.plans_total, fabric.rule_changes
    for kind in (AllToAll, Ring):
        fabric.period(kind)
        assert fabric.at_full_rate()
        assert not fabric.status.alarms
    assert fabric.status.moved_flows_total == moved
    assert fabric.rule_changes == changes
    assert fabric.status.plans_total - plans <= 2 * (PERIOD_S / 10 + 4), "one per planning interval, and at changes"


# ---- patterns whose best plans conflict


@dataclass
class Sending(Ring):
    pairs: Sequence[tuple[str, str]] = ()

    @property
    def flows(self) -> list[FlowId]:
        return [FlowId(*pair) for pair in self.pairs]


OTHER = [("10.0.1.1", "10.0.2.1"), ("10.0.3.1", "10.0.4.1")]
PATTERNS = [[("10.0.1.2", "10.0.4.2")], [("10.0.1.3", "10.0.5.1"), ("10.0.3.2", "10.0.5.2")]]
"""Two patterns of one job on two spines.

With the first, the flows of the other job belong on one spine; with the second, on both."""


class HeldBack(Started):
    """Fabric with two observed jobs, one of which alternates between ``PATTERNS``."""

    def __init__(self) -> None:
        super().__init__(leaves=5, spines=2)
        for name, pairs in (("other", OTHER), ("changing", [pair for pattern in PATTERNS for pair in pattern])):
            ips = sorted({ip for pair in pairs for ip in pair})
            self.send(RegisterJob(JobSpec.parse({"job_id": name, "endpoints": ips, "lease_s": 6000.0})))
        self.carry(1)

    def period(self, number: int, seconds: float) -> list[float]:
        self.rings = [Sending((), pairs=OTHER), Sending((), pairs=PATTERNS[number])]
        shares = []
        for _ in range(round(seconds)):
            self.carry(1)
            shares.append(min(self.rates_bps().values()) / FABRIC_BPS)
        return shares


def test_a_job_that_enters_a_pattern_that_others_hold_back_gets_routes_for_it() -> None:
    fabric = HeldBack()
    for number in (0, 1):
        fabric.period(number, 40)
    for number in (0, 1):
        moved = fabric.status.moved_flows_total
        shares = fabric.period(number, 40)
        assert min(shares[:8]) == 0.5, "until the change is recognised"
        assert set(shares[8:]) == {1.0}
        assert fabric.status.moved_flows_total - moved == 2, "once"
        assert {job.slowdown for job in fabric.status.jobs.values()} == {1.0}, "of what is sent now"
        assert not fabric.status.alarms


def test_patterns_that_change_too_soon_for_that_move_nothing() -> None:
    fabric = HeldBack()
    for number in (0, 1) * 3:
        fabric.period(number, 18)
    moved = fabric.status.moved_flows_total
    for number in (0, 1):
        fabric.period(number, 18)
    assert fabric.status.demands[JobId("changing")].patterns == 2
    assert fabric.status.moved_flows_total == moved


def test_an_all_to_all_for_which_hashing_is_as_good_is_pinned_once_and_stays() -> None:
    """A job with one host per leaf cannot fill a link, however its flows are hashed."""
    fabric = Started(leaves=4, spines=4)
    fabric.rings = [AllToAll(RINGS[0])]
    collectives = [{"algorithm": "all_to_all", "groups": ["dp"], "bytes_per_iteration": 1_000_000}]
    fabric.send(RegisterJob(ring_job("job0", RINGS[0], lease_s=6000, collectives=collectives)))
    fabric.carry(1)
    assert fabric.status.plan_reason == (
        "adopted: pins 12 flows: 12 not pinned yet, though pinning gains nothing now: hashing is as good; "
        "no other flows moved"
    )
    changes = fabric.rule_changes
    fabric.carry(60)
    assert fabric.status.plan_reason == "kept: the running routes are as good as the plan"
    assert (fabric.status.moved_flows_total, fabric.rule_changes) == (0, changes)


# ---- a job's own bytes are not background (traffic of no job), not even those before it registered or changed its path


OURS = ("controller.core.", "controller.fabric.", "controller.jobs.", "controller.tables.", "signalbox.")
"""Packages whose objects may not be in a cycle; the planner is another process, with the usual garbage collector."""

STRAY = FlowId("10.0.1.4", "10.0.2.4")


def training(most_bps: float = FABRIC_BPS, seed: int = 1) -> BusyFabric:
    """Return a fabric where three rings train and no job is registered; with some seeds, ECMP makes flows collide."""
    fabric = started(BusyFabric(hosts_per_leaf=4, seed=seed))
    fabric.all_speak()
    fabric.rings = [Ring(ips, most_bps) for ips in RINGS]
    return fabric


def plan_of(fabric: BusyFabric) -> Plan:
    plan = fabric.status.plan
    assert plan is not None
    return plan


@pytest.mark.parametrize(
    ("seed", "moment"), with_long([(1, 0.0), (2, 0.5), (3, 1.5)], product((1, 2, 3), (0.0, 0.5, 1.0, 1.5)))
)
def test_the_first_plan_is_that_of_an_idle_fabric(seed: int, moment: float) -> None:
    """The jobs register at various times after the last poll."""
    fabric = training(seed=seed)
    fabric.carry(16 + moment)
    assert len(fabric.background_bps()) > 30
    register(fabric, 0, 1, 2, lease_s=600)
    assert fabric.background_bps() == {}
    fabric.carry(0.5)
    first = plan_of(fabric)
    assert (first.bound, first.max_slowdown) == (1.0, 1.0)
    assert set(fabric.rates_bps().values()) == {FABRIC_BPS}, "the plan is in force"
    for _ in range(50):
        fabric.carry(0.5)
        assert fabric.background_bps() == {}
        assert plan_of(fabric).max_slowdown == 1.0
    assert fabric.status.moved_flows_total == 0


@pytest.mark.parametrize("pause_s", [1.0, 9.0])
def test_jobs_that_are_registered_one_after_the_other_end_on_the_same_plan(pause_s: float) -> None:
    fabric = training()
    fabric.carry(16)
    for number in (0, 1, 2):
        register(fabric, number, lease_s=600)
        fabric.carry(pause_s)
    for _ in range(30):
        fabric.carry(0.5)
        assert fabric.background_bps() == {}
    assert plan_of(fabric).max_slowdown == 1.0


def test_a_registration_under_ecmp_leaves_no_background_either() -> None:
    fabric = training()
    fabric.send(SetMode(Mode.ECMP))
    fabric.carry(16)
    register(fabric, 0, 1, 2, lease_s=600)
    for _ in range(30):
        assert fabric.background_bps() == {}
        fabric.carry(0.5)


def test_a_link_that_others_fill_is_still_avoided() -> None:
    fabric = training(most_bps=0.2 * FABRIC_BPS)
    fabric.stray_bps = {STRAY: 0.95 * FABRIC_BPS}
    fabric.carry(16)
    ports = [LinkId(*port) for port in fabric.ports_on(STRAY)[:2]]
    assert fabric.background_bps().keys() >= {*ports}
    register(fabric, 0, 1, 2, lease_s=600)
    for _ in range(30):
        found = fabric.background_bps()
        for link in ports:
            assert found[link] >= (0.95 - 3 * 0.2) * FABRIC_BPS - 1
        fabric.carry(0.5)
        routes = [route for job in fabric.status.jobs.values() for route in job.routes.values() if route]
        used = {link for route in routes for subflow in route for link in subflow.path}
        assert len(routes) == 12
        assert used.isdisjoint(ports)
    assert fabric.background_bps() == {
        link: pytest.approx(0.95 * FABRIC_BPS, rel=0.01)
        for link in (*ports, LinkId(*fabric.hosts[STRAY.dst_ip]), LinkId(*fabric.hosts[STRAY.src_ip], "in"))
    }


def test_what_others_send_is_known_again_as_soon_as_the_job_is_counted() -> None:
    """The background is right at once; it does not approach its value by half with every further poll."""
    fabric = training()
    fabric.carry(16)
    fabric.stray_bps = {STRAY: 0.9 * FABRIC_BPS}
    register(fabric, 0, lease_s=600)
    fabric.rings = fabric.rings[:1]
    link = LinkId(*fabric.ports_on(STRAY)[0])
    seen = []
    for _ in range(30):
        fabric.carry(0.5)
        seen.append(fabric.background_bps().get(link, 0.0))
    known = next(bps for bps in seen[seen.index(0.0) :] if bps)  # at first the old value may remain
    assert known == pytest.approx(0.9 * FABRIC_BPS, rel=0.01)


def test_the_bytes_of_a_job_that_leaves_are_background_when_they_go_on() -> None:
    fabric = training()
    register(fabric, 0, 1, 2, lease_s=600)
    fabric.carry(20)
    assert fabric.background_bps() == {}
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.carry(40)
    link = LinkId(*fabric.ports_on(fabric.rings[0].flows[0])[0])
    assert fabric.background_bps()[link] > 0.4 * FABRIC_BPS
    register(fabric, 0, lease_s=600)
    assert fabric.background_bps() == {}
    fabric.carry(0.5)
    assert plan_of(fabric).max_slowdown == 1.0
    for _ in range(30):
        fabric.carry(0.5)
        assert fabric.background_bps() == {}


@pytest.mark.parametrize("gone_s", [0.5, 9.0, 12.5])
def test_own_bytes_are_no_background_when_a_job_is_registered_again(gone_s: float) -> None:
    """The job's former rules counted in the same window as its new rules, or in a part of that window."""
    fabric = training()
    register(fabric, 0, 1, 2, lease_s=600)
    fabric.carry(20.5)
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.carry(gone_s)
    register(fabric, 0, lease_s=600)
    for _ in range(30):
        assert fabric.background_bps() == {}
        fabric.carry(0.5)
    assert plan_of(fabric).max_slowdown == 1.0


def test_a_job_that_has_ended_leaves_no_cycle_of_objects() -> None:
    """The garbage collector looks at objects older than 2 s only once an hour, so such cycles would fill memory."""
    fabric = training()
    fabric.carry(4)
    gc.collect()
    gc.disable()
    try:
        register(fabric, 0, 1, lease_s=600)
        fabric.carry(12)
        for number in (0, 1):
            fabric.send(DeregisterJob(JobId(f"job{number}")))
        fabric.carry(4)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith(OURS)}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left


# ---- paths that change


def test_the_bytes_on_a_path_that_was_left_before_counters_were_evaluated_are_no_background() -> None:
    """The controller evaluates counters every 5 s."""
    config = CONFIG.model_copy(update={"counters": CountersConfig(interval_s=5.0, window_s=6.0)})
    fabric = started(BusyFabric(leaves=2, spines=3, hosts_per_leaf=1), config=config)
    ring = Ring(["10.0.1.1", "10.0.2.1"], 0.8 * FABRIC_BPS)
    fabric.rings = [ring]
    fabric.send(RegisterJob(ring_job("ring", [*ring.ips], lease_s=600)))
    fabric.run(2)
    fabric.carry(15)
    paths = []
    for seconds in (4.5, 1.5):
        paths.append(fabric.ports_on(ring.flows[0]))
        fabric.cut(*paths[-1][0])
        fabric.carry(seconds)
    paths.append(fabric.ports_on(ring.flows[0]))
    assert len({ports[0] for ports in paths}) == 3
    assert fabric.background_bps() == {}


def test_hashed_bytes_on_links_that_are_used_again_after_a_drain_are_no_background() -> None:
    """The job registers while the links are drained."""
    fabric = started(BusyFabric(4, 2, 3, seed=1))
    fabric.all_speak()
    fabric.send(SetMode(Mode.ECMP))
    fabric.send(DrainParts(("spine2",)))
    fabric.run(2)
    ring = [f"10.0.{leaf}.1" for leaf in (1, 3, 2, 4)]
    fabric.send(RegisterJob(ring_job("ring", ring, lease_s=600)))
    fabric.run(2)
    fabric.rings = [Ring(ring)]
    fabric.carry(3)
    fabric.send(UndrainParts(("spine2",)))
    fabric.run(1)
    used = {fabric.switches[at.dpid].name for flow in fabric.rings[0].flows for at in fabric.ports_on(flow)}
    assert "spine2" in used
    fabric.carry(20)
    assert fabric.background_bps() == {}
