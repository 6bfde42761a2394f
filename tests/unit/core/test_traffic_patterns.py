"""Jobs that alternate between a ring and an all-to-all: once both are known, no flow moves and no rule changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from controller.jobs.messages import RegisterJob
from controller.planning.problem import FlowId
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.busy_fabric import BusyFabric, Ring
from tests.support.fake_fabric import FABRIC_BPS, ring_job
from tests.support.three_rings import RINGS, register, started

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
        """Return, for each second, the rate of the slowest flow as a share of the link rate."""
        self.rings = [Sending((), pairs=OTHER), Sending((), pairs=PATTERNS[number])]
        shares = []
        for _ in range(round(seconds)):
            self.carry(1)
            shares.append(min(self.rates_bps().values()) / FABRIC_BPS)
        return shares


def test_a_job_that_enters_a_pattern_that_others_hold_back_gets_routes_for_it() -> None:
    fabric = HeldBack()
    for number in (0, 1, 0, 1):
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
    assert fabric.status.plan_reason == "kept: the running routes are as good"
    assert (fabric.status.moved_flows_total, fabric.rule_changes) == (0, changes)
