"""Pairs of small new jobs, found from the first counters that show payload; right announcements are not harmed.

All pairs of such a job are counted until its announcement is confirmed. Counters of jobs that the controller recently
began to learn are polled more often (``MeasuredDemand.soon``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from controller.demand import measured_demand
from controller.demand.job_demand import DemandSource
from controller.demand.measured_demand import SOON_RULES, SOON_S, JobsByAddress, MeasuredDemand
from controller.demand.pair_counters import Totals
from controller.demand.watched_job import APART_S, FirstBytes
from controller.jobs.job import HEADER_BYTES
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.spec import JobId, JobSpec, Transport
from signalbox.jobs.subflows import Pair
from tests.support.training_cluster import (
    ADDRESSES,
    BROADCAST,
    FOUR,
    INTERVAL_S,
    RIGHT,
    Cluster,
    M,
    Traffic,
    collective,
    ring,
    spec,
)


def announced(number: int, hosts: int = 4, **more: Any) -> JobSpec:
    """Return the spec of job ``number``; no two numbers share a host."""
    return spec(
        [f"10.{number // 200}.{number % 200}.{host}" for host in range(1, hosts + 1)], job_id=f"job{number}", **more
    )


def learnt(cluster: Cluster) -> set[str]:
    return {job_id for job_id, demand in cluster.demand.demands.items() if demand.counted}


def test_another_collective_of_a_small_job_is_planned_for_at_its_first_counters() -> None:
    cluster = Cluster(spec(FOUR), apart_s=0.5)
    cluster.train(2 * INTERVAL_S, {}, pause=True)
    cluster.train(0.5, BROADCAST)
    assert cluster.of_job.source is DemandSource.DECLARED
    cluster.demand.search(cluster.now)
    assert cluster.of_job.pairs == {*RIGHT, (FOUR[1], FOUR[3])}, "only the second leaf is polled by now"
    assert not cluster.demand.counters.news, "the same counters are not examined again"
    cluster.until(lambda demand: demand.pairs >= BROADCAST.keys(), BROADCAST, 2 * INTERVAL_S)


@pytest.mark.parametrize(("reports", "within_s"), [(True, 14), (False, 24)])
def test_a_small_job_is_learnt_until_it_is_confirmed(reports: bool, within_s: float) -> None:
    cluster = Cluster(spec(FOUR), reports=reports)
    cluster.until(lambda demand: len(demand.counted) != 4, RIGHT, within_s)
    assert cluster.of_job.source is DemandSource.CONFIRMED
    assert not cluster.of_job.counted


def test_a_job_that_shares_one_host_is_learnt_and_one_that_announced_all_its_pairs_is_not() -> None:
    cluster = Cluster(spec(FOUR), spec(ADDRESSES[3:7], job_id="other"))
    assert learnt(cluster) == {"job", "other"}
    assert not learnt(Cluster(spec(FOUR[:2]), announced(1, collectives=collective("all_to_all"))))


@pytest.mark.parametrize("size", [30_000, M])
def test_a_copy_before_training_has_a_route_for_some_seconds_only(size: float) -> None:
    cluster = Cluster(spec(FOUR))
    cluster.train(2 * INTERVAL_S, {}, pause=True)
    cluster.train(1.0, {(FOUR[0], FOUR[2]): size})
    assert cluster.train(INTERVAL_S, {}, pause=True).pairs == {*RIGHT, (FOUR[0], FOUR[2])}
    assert cluster.train(7 * INTERVAL_S, {}, pause=True).pairs == RIGHT.keys()
    assert not cluster.of_job.contradicted
    assert cluster.of_job.counted, "it has not begun"


@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("seconds", [1, 4, 9])
def test_parameters_that_are_sent_first_contradict_nothing(seconds: float, reports: bool) -> None:
    cluster = Cluster(spec(FOUR), reports=False, lag_s=0.5, apart_s=0.1)
    cluster.train(3, {}, pause=True)
    cluster.train(seconds, {(FOUR[0], ip): 1.5 * M for ip in FOUR[1:]})
    cluster.reports, cluster.progress = reports, 0.0
    while cluster.of_job.source is not DemandSource.CONFIRMED:
        assert cluster.train(INTERVAL_S, RIGHT).difference is None
    assert cluster.of_job.pairs == RIGHT.keys()


@pytest.mark.parametrize("before", [RIGHT, BROADCAST])
def test_what_the_previous_job_sent_last_is_not_the_new_ones(before: Traffic) -> None:
    other = [FOUR[place] for place in (0, 2, 3, 1)]
    for tenths in range(0, 20, 3):
        cluster = Cluster(spec(FOUR), lag_s=0.5, apart_s=0.1)
        cluster.train(5 + tenths / 10, before)
        cluster.update(endpoints=other)
        for _ in range(10):
            cluster.train(INTERVAL_S, ring(other))
            assert cluster.of_job.pairs == ring(other).keys()
            assert cluster.of_job.difference is None


@pytest.mark.parametrize("observed_first", [True, False])
def test_traffic_of_another_job_on_the_same_hosts_is_not_held_against_a_job(observed_first: bool) -> None:
    cluster = Cluster(lag_s=0.5)
    both = spec(FOUR, [], job_id="observed"), spec(FOUR)
    cluster.begin(*both[:: 1 if observed_first else -1])
    for _ in range(15):
        cluster.train(INTERVAL_S, {**RIGHT, (FOUR[0], FOUR[2]): M, (FOUR[1], FOUR[3]): M})
        assert cluster.of_job.pairs == RIGHT.keys()
        assert cluster.of_job.difference is None
    assert cluster.of_job.source is DemandSource.CONFIRMED


def test_an_unconfirmed_job_leaves_its_rules_to_an_observed_one() -> None:
    cluster = Cluster(spec(FOUR), max_rules=12)
    assert cluster.of_job.counted
    cluster.begin(spec(ADDRESSES[4:], [], job_id="observed"))
    assert cluster.demand.demands[JobId("observed")].learning
    assert not cluster.of_job.counted
    cluster.train(30, RIGHT)
    assert cluster.of_job.source is DemandSource.CONFIRMED


def test_the_tenant_with_the_most_rules_gives_way_and_its_oldest_job_first() -> None:
    cluster = Cluster(max_rules=36)
    cluster.begin(*map(announced, range(3)), tenant="red")
    cluster.begin(announced(3), tenant="blue")
    assert learnt(cluster) == {"job1", "job2", "job3"}
    cluster.begin(announced(4), tenant="red")
    assert learnt(cluster) == {"job2", "job3", "job4"}
    cluster.begin(announced(5), tenant="blue")
    assert len(learnt(cluster) & {"job3", "job5"}) == 2


def test_no_job_gives_way_to_one_that_does_not_fit_anyway() -> None:
    cluster = Cluster(announced(0), announced(1), max_rules=29)
    cluster.begin(announced(2, hosts=6))
    assert learnt(cluster) == {"job0", "job1"}


@pytest.mark.parametrize("reports", [True, False])
def test_traffic_slower_than_the_parameters_before_it_contradicts_an_announcement(reports: bool) -> None:
    cluster = Cluster(spec(FOUR), reports=False)
    other = FOUR[0], FOUR[2]
    cluster.train(4 * INTERVAL_S, {}, pause=True)
    cluster.train(INTERVAL_S, {other: 20 * M})
    cluster.reports, cluster.progress = reports, 0.0
    cluster.until(lambda demand: demand.contradicted, {**RIGHT, other: M}, 24)
    difference = cluster.of_job.difference
    assert difference
    assert [pair for pair, _ in difference.undeclared] == [other]


def test_a_restart_compares_no_hosts_of_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing the hosts of 2,000 jobs, each on 64 of 128 hosts, would take four seconds."""
    cluster = Cluster(*(announced(number) for number in range(3)))
    monkeypatch.setattr(JobsByAddress, "sharing", lambda *_: pytest.fail("hosts are compared"))
    demand = MeasuredDemand(INTERVAL_S, 4032)
    demand.follow(cluster.registry.jobs, cluster.now, {})
    assert not any(of_job.counted for of_job in demand.demands.values())


# ---- counters that are polled more often


def test_counters_are_polled_soon_only_while_a_job_is_learnt() -> None:
    announced = spec(ADDRESSES[4:], job_id="announced")
    cluster = Cluster(spec(FOUR, []), announced, max_rules=12)
    assert cluster.demand.soon == set(FOUR)
    cluster.train(30, RIGHT)
    assert not cluster.of_job.learning
    assert cluster.demand.soon == frozenset()


def test_a_job_that_sends_nothing_is_polled_soon_for_no_longer_than_a_minute() -> None:
    cluster = Cluster(spec(FOUR, []))
    cluster.train(SOON_S - 2 * INTERVAL_S, {}, pause=True)
    assert cluster.demand.soon == set(FOUR)
    cluster.train(3 * INTERVAL_S, {}, pause=True)
    assert cluster.of_job.learning
    assert cluster.demand.soon == frozenset()


def test_a_job_without_rules_for_learning_is_not_polled_soon() -> None:
    cluster = Cluster(spec(FOUR, []), max_rules=12)
    cluster.begin(spec(ADDRESSES[4:], [], job_id="waits"))
    assert not cluster.demand.demands[JobId("waits")].learning
    assert cluster.demand.soon == set(FOUR)


def test_of_many_rules_those_of_the_jobs_that_began_last_are_polled_soon() -> None:
    cluster = Cluster(max_rules=4 * SOON_RULES)
    hosts = next(n for n in range(2, 100) if n * (n - 1) > SOON_RULES / 2)
    many = [[f"10.{job}.0.{host}" for host in range(1, hosts + 1)] for job in range(2)]
    for number, addresses in enumerate(many):
        cluster.begin(spec(addresses, [], job_id=f"job{number}"))
        cluster.now += 1
    cluster.begin(spec(FOUR, []))
    assert all(demand.learning for demand in cluster.demand.demands.values())
    assert cluster.demand.soon == {*many[1], *FOUR}


def test_observed_jobs_have_precedence_over_jobs_that_are_learnt_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_demand, "SOON_RULES", 12)
    cluster = Cluster(spec(FOUR, []))
    cluster.now += 1
    cluster.begin(spec(ADDRESSES[4:], job_id="later"))
    assert cluster.demand.demands[JobId("later")].counted
    assert cluster.demand.soon == set(FOUR)


A, B, C = "10.0.1.1", "10.0.2.1", "10.0.3.1"
PAIRS: list[Pair] = [(A, B), (B, A), (B, C), (C, B)]
SEGMENT, ACK, SACKS = (1514, 1448), (66, 0), (94, 28)
"""Kinds of packets: bytes of the packet, and bytes of its payload."""


class Counted:
    """Counters of ``PAIRS``.

    ``before``: packets of each pair that other jobs had sent before."""

    def __init__(self, before: int = 0) -> None:
        self.now = 100.0
        self.bytes = dict.fromkeys(PAIRS, 1514.0 * before)
        self.packets = dict.fromkeys(PAIRS, float(before))
        self.at = dict.fromkeys(PAIRS, self.now)
        self.first = FirstBytes(HEADER_BYTES[Transport.TCP])
        self.first.begin(self.totals, self.now, self.now - 4)

    @property
    def totals(self) -> Totals:
        rows = [[values[pair] for pair in PAIRS] for values in (self.at, self.bytes, self.packets)]
        return Totals(*np.array(rows))

    def poll(
        self,
        seconds: float,
        sent: Mapping[Pair, int],
        kind: tuple[int, int] = SEGMENT,
        known: VirtualLinks = VirtualLinks(),  # noqa: B008
    ) -> bool:
        """Let pairs send, poll them after ``seconds``, and return whether a new pair was found.

        ``sent``: packets that each polled pair sends; the other pairs are not polled."""
        self.now += seconds
        for pair, packets in sent.items():
            self.at[pair] = self.now
            self.bytes[pair] += packets * kind[0]
            self.packets[pair] += packets
        return self.first.search(PAIRS, self.totals, known.pairs, 1.0, self.now)

    def found(self, known: VirtualLinks = VirtualLinks()) -> dict[Pair, int]:  # noqa: B008
        return {(link.src_ip, link.dst_ip): link.phase for link in self.first.added_to(known)}


def test_a_pair_is_found_with_the_first_counters_that_show_its_payload() -> None:
    counted = Counted()
    assert not counted.poll(0.5, dict.fromkeys(PAIRS, 0))
    assert counted.poll(0.5, {(A, B): 200})
    assert not counted.poll(0.5, {(A, B): 200})
    assert counted.found() == {(A, B): 0}


def test_handshakes_and_acknowledgements_are_no_traffic_even_before_what_they_answer_is_counted() -> None:
    counted = Counted()
    assert not counted.poll(0.5, dict.fromkeys(PAIRS, 5))
    assert not counted.poll(0.5, {(B, A): 100_000}, ACK)
    assert not counted.poll(0.5, {(B, A): 100_000}, SACKS)
    assert counted.poll(0.5, {(A, B): 100_000})
    assert counted.found() == {(A, B): 0}


def test_a_pair_whose_counters_lag_is_found_with_the_next_ones_and_sends_as_much_at_the_same_time() -> None:
    counted = Counted()
    assert counted.poll(0.5, {(A, B): 10_000, (B, C): 500})
    assert counted.found() == {(A, B): 0}, "a pair that sends little beside others is not found"
    assert counted.poll(0.5, {(A, B): 10_000, (B, C): 9_500})
    assert {(link.phase, link.bytes) for link in counted.first.added_to(VirtualLinks())} == {(0, 2 * 10_000 * 1448)}


def test_pairs_that_are_found_later_send_at_another_time_and_beside_what_is_known() -> None:
    known = VirtualLinks([VirtualLink(C, A, 3, 10)])
    counted = Counted()
    assert counted.poll(0.5, {(A, B): 1000}, known=known)
    assert counted.poll(APART_S + 0.1, {(B, C): 1000}, known=known)
    assert counted.found(known) == {(C, A): 3, (A, B): 4, (B, C): 5}
    assert counted.first.added_to(known) is counted.first.added_to(known)


def test_a_pair_that_is_known_by_now_or_has_sent_little_is_not_added() -> None:
    counted = Counted()
    assert counted.poll(0.5, {(A, B): 1000, (B, C): 1000})
    measured = VirtualLinks([VirtualLink(A, B, 0, 10)])
    assert counted.found(measured) == {(A, B): 0, (B, C): 1}
    counted.first.measured(counted.now + 1)
    assert counted.first.added_to(measured) is measured
    assert not counted.poll(0.5, {(B, C): 1000}, known=measured), "again and again would move routes each time"


def test_a_pair_that_sent_nothing_since_a_time_is_forgotten_if_it_was_found_before() -> None:
    counted = Counted()
    assert counted.poll(0.5, {(A, B): 1000, (B, C): 1000})
    counted.first.forget_silent([], counted.now)
    assert counted.found() == {(A, B): 0, (B, C): 0}
    counted.first.forget_silent([(A, B)], counted.now + 0.01)
    assert counted.found() == {(A, B): 0}


def test_pairs_that_come_to_be_counted_begin_with_their_first_counters() -> None:
    counted = Counted(before=10_000)
    counted.first.of_pairs(np.array([0, 1, -1, -1]))
    assert not counted.poll(0.5, dict.fromkeys(PAIRS, 0))
    assert counted.poll(0.5, {(C, B): 1000})
    assert counted.found() == {(C, B): 0}
