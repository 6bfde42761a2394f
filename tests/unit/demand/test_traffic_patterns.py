"""A job whose traffic alternates between a few patterns: once all patterns are known, the planned demand stays."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from controller.demand import traffic_patterns
from controller.demand.job_demand import DemandSource, JobDemand
from controller.demand.judgement import Judge
from controller.demand.payload_windows import Window
from controller.demand.traffic_patterns import MOST, Pattern, TrafficPatterns
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.subflows import Pair
from tests.support.training_cluster import (
    ADDRESSES,
    INTERVAL_S,
    Cluster,
    M,
    Traffic,
    alike,
    collective,
    ring,
    spec,
)

RING = ring(ADDRESSES)
BACKWARDS = ring(ADDRESSES, -1)
THIRD = ring(ADDRESSES, 3)
ALL_TO_ALL = {pair: M / len(ADDRESSES) for pair in permutations(ADDRESSES, 2)}


def proportions(links: VirtualLinks) -> dict[tuple[str, str, int], float]:
    """Return the bytes of each link divided by the largest bytes of its phase; routes depend on these ratios."""
    most: dict[int, int] = {}
    for link in links:
        most[link.phase] = max(most.get(link.phase, 0), link.bytes)
    return {(link.src_ip, link.dst_ip, link.phase): link.bytes / most[link.phase] for link in links}


class Periods:
    """Training in periods, each with one of the patterns.

    ``changes``: number of changes of the planned demand, per period.
    ``alarms``: number of intervals with an alarm, per period."""

    def __init__(self, cluster: Cluster, patterns: Sequence[Traffic], period_s: float, iterations_s: Sequence[float]):
        self.cluster = cluster
        self.patterns = patterns
        self.period_s = period_s
        self.iterations_s = iterations_s
        self.changes: list[int] = []
        self.alarms: list[int] = []

    def train(self, *numbers: int) -> JobDemand:
        """Train one period with each of these patterns, and return the last measured demand."""
        cluster = self.cluster
        for number in numbers:
            changes = alarms = 0
            cluster.iteration_s = self.iterations_s[number % len(self.iterations_s)]
            for _ in range(round(self.period_s / INTERVAL_S)):
                before = proportions(cluster.of_job.virtual_links)
                demand = cluster.train(INTERVAL_S, self.patterns[number])
                now = proportions(demand.virtual_links)
                changes += before.keys() != now.keys() or any(abs(before[key] - now[key]) > 0.1 for key in now)
                alarms += demand.contradicted
            self.changes.append(changes)
            self.alarms.append(alarms)
        return cluster.of_job


def cluster_of(announced: bool = True, **more: Any) -> Cluster:
    return Cluster(spec(ADDRESSES, None if announced else []), lag_s=0.5, apart_s=0.1, **more)


@pytest.mark.parametrize(
    ("first", "period_s", "iterations_s", "more"),
    [
        (RING, 52, [1.3], {}),
        (BACKWARDS, 30, [0.4], {}),
        (RING, 30, [1.3, 2.2], {"reports": False}),
        (BACKWARDS, 120, [3.1, 1.7], {"bursts": 0.4}),
        pytest.param(BACKWARDS, 52, [1.3], {}, marks=pytest.mark.long),
        pytest.param(RING, 30, [0.4], {}, marks=pytest.mark.long),
        pytest.param(BACKWARDS, 30, [1.3, 2.2], {"reports": False}, marks=pytest.mark.long),
        pytest.param(RING, 120, [3.1, 1.7], {"bursts": 0.4}, marks=pytest.mark.long),
    ],
)
def test_two_patterns_are_planned_for_together_after_the_second_period(
    first: Traffic, period_s: float, iterations_s: list[float], more: dict[str, Any]
) -> None:
    """The job announced a ring. It alternates between one ring (this or the opposite one) and an all-to-all."""
    patterns = [first, ALL_TO_ALL]
    periods = Periods(cluster_of(**more), patterns, period_s, iterations_s)
    demand = periods.train(0, 1, 0, 1, 0, 1)
    assert periods.alarms[4:] == [0, 0]
    assert periods.changes[4:] == [0, 0]
    assert (demand.patterns, demand.source) == (2, DemandSource.MEASURED)
    assert demand.pairs == {pair for traffic in patterns for pair in traffic}
    for number in (0, 1):
        periods.train(number)
        sending = periods.cluster.of_job.of_pattern
        assert sending is not None
        total = sum(sending.bytes_of.values())
        assert alike({pair: size / total for pair, size in sending.bytes_of.items()}, patterns[number], 0.1)
        assert {link.phase for link in sending} < {link.phase for link in periods.cluster.of_job.virtual_links}


@pytest.mark.parametrize("announced", [True, False])
def test_three_patterns_in_any_order_raise_no_alarm_once_known(announced: bool) -> None:
    periods = Periods(cluster_of(announced), [RING, ALL_TO_ALL, THIRD], 30, [1.3])
    draw, last = random.Random(5), 2
    periods.train(0, 1, 2, 0, 1, 2)
    for _ in range(6):
        last = draw.choice([number for number in range(3) if number != last])
        assert periods.train(last).patterns == 3
    assert sum(periods.alarms[6:]) == sum(periods.changes[6:]) == 0


@pytest.fixture
def kept_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_patterns, "KEPT_S", 200.0)


@pytest.mark.usefixtures("kept_for_minutes")
def test_a_pattern_that_appears_once_is_not_planned_for_any_more() -> None:
    cluster = cluster_of()
    cluster.train(60, RING)
    cluster.train(60, ALL_TO_ALL)
    cluster.train(60, RING)
    assert cluster.train(200, RING).pairs == RING.keys()
    assert not cluster.of_job.contradicted
    assert cluster.of_job.source is DemandSource.CONFIRMED


def test_traffic_that_changed_for_good_leaves_nothing_of_the_traffic_before() -> None:
    cluster = cluster_of(announced=False)
    cluster.train(60, RING)
    assert cluster.train(60, THIRD).pairs == THIRD.keys()
    assert cluster.of_job.of_pattern is None


def test_a_wrong_announcement_is_not_taken_for_one_of_two_patterns() -> None:
    cluster = Cluster(spec(ADDRESSES, collective("ring_all_reduce", M // 2)), lag_s=0.5)
    cluster.train(60, RING)
    assert all(cluster.train(INTERVAL_S, RING).contradicted for _ in range(100))


def test_a_new_pattern_beside_known_ones_raises_the_alarm_and_is_learnt() -> None:
    periods = Periods(cluster_of(), [RING, ALL_TO_ALL], 40, [1.3])
    periods.train(0, 1, 0, 1)
    five = {(src, dst): 1.0 * M for src, dst in ALL_TO_ALL if src == ADDRESSES[0]}
    demand = periods.cluster.train(60, five)
    assert demand.contradicted
    assert demand.of_pattern is not None
    assert demand.of_pattern.pairs == five.keys()
    assert demand.pairs == ALL_TO_ALL.keys()


def test_a_job_that_never_sends_the_same_keeps_a_few_patterns() -> None:
    draw = random.Random(4)
    cluster = cluster_of(announced=False)
    for _ in range(12):
        demand = cluster.train(24, {pair: draw.choice([1, 3]) * M for pair in draw.sample(sorted(ALL_TO_ALL), 6)})
        assert demand.patterns <= MOST
        assert len({link.phase for link in demand.virtual_links}) <= MOST + 1


def test_a_window_that_spans_a_change_begins_no_pattern() -> None:
    periods = Periods(cluster_of(), [RING, ALL_TO_ALL], 37, [1.3])
    for number in (0, 1) * 6:
        assert periods.train(number).patterns <= 2


def test_patterns_shorter_than_a_window_are_planned_for_as_their_mixture() -> None:
    periods = Periods(cluster_of(), [RING, ALL_TO_ALL], 6, [1.3])
    periods.train(*(0, 1) * 6)
    for number in (0, 1) * 6:
        demand = periods.train(number)
        assert demand.patterns <= 1
        assert demand.pairs == ALL_TO_ALL.keys()
        assert demand.of_pattern is None


@pytest.mark.usefixtures("kept_for_minutes")
def test_after_a_restart_routes_of_all_patterns_stay_while_they_are_learnt_again() -> None:
    periods = Periods(cluster_of(), [RING, ALL_TO_ALL], 40, [1.3])
    demand = periods.train(0, 1, 0, 1)
    after = cluster_of()
    after.demand.follow({}, after.now)
    after.demand.follow(after.registry.jobs, after.now, {after.job: demand.held or VirtualLinks()})
    again = Periods(after, [RING, ALL_TO_ALL], 40, [1.3])
    for number in (0, 1, 0, 1):
        assert again.train(number).pairs == demand.pairs
    assert again.alarms[3] == 0
    assert len({link.phase for link in after.train(230, RING).virtual_links}) == 1


@pytest.mark.parametrize("announced", [True, False])
def test_phases_of_other_patterns_are_idle_while_a_pattern_that_lasted_is_sent(announced: bool) -> None:
    periods = Periods(cluster_of(announced), [RING, ALL_TO_ALL], 40, [1.3])
    periods.train(0, 1, 0, 1)
    for number in (0, 1, 0):
        demand = periods.train(number)
        assert demand.of_pattern is not None
        assert demand.idle_phases == {link.phase for link in demand.virtual_links} - {
            link.phase for link in demand.of_pattern
        }
        assert periods.cluster.train(1, periods.patterns[number]).idle_phases


def test_no_phases_are_idle_where_patterns_change_soon() -> None:
    periods = Periods(cluster_of(), [RING, ALL_TO_ALL], 18, [1.3])
    for number in (0, 1) * 6:
        demand = periods.train(number)
        assert not demand.idle_phases
    assert demand.of_pattern is not None


def test_amounts_in_other_proportions_are_another_pattern_and_larger_ones_are_not() -> None:
    ab, bc = ("a", "b"), ("b", "c")
    patterns = TrafficPatterns(VirtualLinks(), VirtualLinks(), 0.0)
    assert patterns.hold({ab: 1000.0, bc: 1000.0}, True, 0.1)
    first = patterns.current
    assert not patterns.hold({ab: 1100.0, bc: 900.0}, True, 0.1)
    assert patterns.hold({ab: 3000.0, bc: 3000.0}, True, 0.1)
    assert patterns.current is first
    assert patterns.hold({ab: 3000.0, bc: 100.0}, True, 0.1)
    assert patterns.current is not first


@pytest.mark.parametrize("more", [{}, {("c", "a"): 1000.0}])
def test_other_amounts_keep_the_announced_phases_and_other_pairs_send_at_one_time(more: dict[Pair, float]) -> None:
    announced = [VirtualLink("a", "b", 0, 1000), VirtualLink("b", "c", 1, 1000)]
    patterns = TrafficPatterns(VirtualLinks(announced), VirtualLinks(), 0.0)
    assert patterns.hold({("a", "b"): 5000.0, ("b", "c"): 5000.0, **more}, True, 0.1)
    assert [link.phase for link in patterns.links] == ([0, 0, 0] if more else [0, 1])


def test_a_job_does_not_alternate_with_one_pattern_alone() -> None:
    ab, bc = ("a", "b"), ("b", "c")
    patterns = TrafficPatterns(VirtualLinks(), VirtualLinks(VirtualLink(*pair, 0, 1000) for pair in (ab, bc)), 0.0)
    patterns.hold({ab: 1000.0}, True, 0.1)
    bps = np.array([1e6, 8e6])
    window = Window(0.0, bps, bps, 6.0, None, begun=True, whole=True)
    assert not patterns.mixed(Judge([ab, bc], {}, None), window, (), are_long=False)


@pytest.mark.parametrize(("other_bps", "spans_a_change"), [(0.0, True), (8e6, False)])
def test_a_window_with_a_pair_of_no_pattern_spans_no_change(other_bps: float, spans_a_change: bool) -> None:
    ab, bc, ca = ("a", "b"), ("b", "c"), ("c", "a")
    patterns = TrafficPatterns(VirtualLinks(), VirtualLinks(), 0.0)
    patterns.known = [Pattern({pair: 1000.0}, VirtualLinks(), alternates=True) for pair in (ab, bc)]
    bps = np.array([1e6, 3e6, other_bps])
    window = Window(0.0, bps, bps, 6.0, None, begun=True, whole=True)
    assert patterns.mixed(Judge([ab, bc, ca], {}, None), window, (), are_long=False) == spans_a_change
