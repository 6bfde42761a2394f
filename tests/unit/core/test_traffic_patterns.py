"""Jobs that change between a ring and an all-to-all: once both are known nothing moves, and no rule changes."""

from __future__ import annotations

from itertools import permutations

from controller.jobs.messages import RegisterJob
from controller.planning.problem import FlowId
from tests.support.busy_fabric import BusyFabric, Ring
from tests.support.fake_fabric import FABRIC_BPS, ring_job
from tests.support.three_rings import CONFIG, RINGS

PERIOD_S = 40


class AllToAll(Ring):
    @property
    def flows(self) -> list[FlowId]:
        return [FlowId(*pair) for pair in permutations(self.ips, 2)]


class Alternating(BusyFabric):
    """Three jobs of one host per leaf, which announce rings."""

    def __init__(self) -> None:
        super().__init__(hosts_per_leaf=4, seed=1)
        self.lag_s = 0.5
        self.start(CONFIG)
        self.run(3)
        self.all_speak()
        for number, ips in enumerate(RINGS):
            self.send(RegisterJob(ring_job(f"job{number}", ips, lease_s=6000)))
        self.carry(1)
        self.rule_changes = 0
        self.after_each_mod = self._count_rule_change

    def _count_rule_change(self) -> None:
        self.rule_changes += 1

    def period(self, kind: type[Ring]) -> None:
        self.rings = [kind(ips) for ips in RINGS]
        self.carry(PERIOD_S)

    def at_full_rate(self) -> bool:
        """Whether every flow gets its share of its host's link."""
        rates = self.rates_bps()
        return all(rates[flow] * len(ring.flows) / 4 >= 0.99 * FABRIC_BPS for ring in self.rings for flow in ring.flows)


def test_jobs_that_alternate_move_no_flow_and_change_no_rule_after_the_second_period() -> None:
    fabric = Alternating()
    for kind in (Ring, AllToAll, Ring):
        fabric.period(kind)
    moved, plans, changes = fabric.status.moved_flows_total, fabric.status.plans_total, fabric.rule_changes
    for kind in (AllToAll, Ring, AllToAll):
        fabric.period(kind)
        assert fabric.at_full_rate()
        assert not fabric.status.alarms
    assert fabric.status.moved_flows_total == moved
    assert fabric.rule_changes == changes
    assert fabric.status.plans_total - plans <= 3 * (PERIOD_S / 10 + 4), "one per planning interval, and at changes"
