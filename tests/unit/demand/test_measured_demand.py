"""Measured demands of jobs, judged from counters: announced rightly, wrongly, or not at all."""

from __future__ import annotations

import random
import tracemalloc
from itertools import pairwise, permutations

import numpy as np
import pytest

from controller.alarms import difference_text, text
from controller.core.alarms import demand_alarm
from controller.demand import watched_job
from controller.demand.job_demand import DemandSource, Difference, Finding, JobDemand
from controller.demand.measured_demand import BATCH, MeasuredDemand
from controller.fabric.counter_samples import Counted
from controller.fabric.topology import Dpid
from controller.jobs.messages import RegisterJob
from controller.jobs.registry import JobRegistry
from signalbox.errors import InvalidInput
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.training_cluster import (
    ADDRESSES,
    BROADCAST,
    FOUR,
    INTERVAL_S,
    REVERSED,
    RIGHT,
    Cluster,
    M,
    Traffic,
    alike,
    bytes_error,
    collective,
    ring,
    shares,
    spec,
)


@pytest.mark.parametrize("reports", [True, False])
def test_traffic_in_the_other_direction_is_found_and_planned_for(reports: bool) -> None:
    cluster = Cluster(spec(FOUR), reports=reports)
    took_s = cluster.until(lambda demand: demand.difference is not None, REVERSED, 15)
    assert took_s <= 15
    demand = cluster.train(12, REVERSED)
    assert demand.source is DemandSource.MEASURED
    assert alike(shares(demand), REVERSED)
    assert demand.difference is not None
    assert {pair for pair, _ in demand.difference.undeclared} == REVERSED.keys()
    assert Finding.OTHER_TRAFFIC in demand.difference.findings
    assert demand.difference.backwards
    assert demand.difference.factor is None
    said = difference_text(demand.difference)
    assert said.startswith("all announced pairs carry traffic in the other direction only")


def test_traffic_in_the_other_direction_of_a_tree_is_not_called_that() -> None:
    other = Cluster(spec(FOUR, collective("broadcast"), library="gloo")).train(40.0, REVERSED)
    assert other.difference is not None
    assert not other.difference.backwards


def test_half_the_bytes_are_found_where_iterations_are_reported() -> None:
    cluster = Cluster(spec(FOUR, collective("ring_all_reduce", M // 2)))
    cluster.until(lambda demand: demand.difference is not None, RIGHT, 15)
    demand = cluster.train(10, RIGHT)
    assert demand.source is DemandSource.MEASURED
    assert alike(shares(demand), RIGHT)
    assert max(link.bytes for link in demand.virtual_links) == pytest.approx(1.5 * M, rel=0.1)
    assert demand.difference is not None
    assert demand.difference.off[0][1] == pytest.approx(2, rel=0.2)
    assert demand.difference.findings == (Finding.OTHER_AMOUNTS,)
    assert demand.difference.factor == pytest.approx(2, rel=0.2)


def test_an_announcement_of_one_byte_has_a_factor() -> None:
    cluster = Cluster(spec(FOUR, collective("ring_reduce_scatter", 1)))
    assert {link.bytes for link in cluster.of_job.virtual_links} == {1}
    cluster.until(lambda demand: demand.difference is not None, RIGHT, 15)
    assert cluster.of_job.difference is not None
    assert cluster.of_job.difference.factor == pytest.approx(1.5 * M, rel=0.1)


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("bursts", [0.1, 0.9])
def test_other_amounts_are_found_where_iterations_and_counters_are_in_step(factor: float, bursts: float) -> None:
    """Every window of whole iterations ends at the same part of an iteration."""
    cluster = Cluster(spec(FOUR, collective("ring_all_reduce", int(factor * M))), bursts=bursts)
    cluster.iteration_s = 3.0
    cluster.until(lambda demand: demand.difference is not None, RIGHT, 20)
    assert cluster.of_job.difference is not None
    assert cluster.of_job.difference.findings == (Finding.OTHER_AMOUNTS,)


@pytest.mark.parametrize("bursts", [1.0, 0.3])
@pytest.mark.parametrize("reports", [True, False])
def test_an_observed_job_is_learnt_and_then_counted_by_its_own_rules_only(reports: bool, bursts: float) -> None:
    cluster = Cluster(spec(FOUR, []), reports=reports, bursts=bursts)
    assert cluster.of_job.learning
    assert cluster.of_job.counted == set(permutations(FOUR, 2))
    assert cluster.of_job.source is DemandSource.LEARNING
    traffic = {**REVERSED, (FOUR[0], FOUR[2]): 0.005 * M}  # with small messages of a library
    cluster.until(lambda demand: demand.source is DemandSource.MEASURED, traffic, 10)
    assert cluster.of_job.pairs == REVERSED.keys()
    demand = cluster.train(20, traffic)
    assert alike(shares(demand), REVERSED)
    assert not demand.learning
    assert demand.counted == frozenset()
    after = cluster.train(60, traffic)
    assert shares(after) == pytest.approx(shares(demand)), "the bytes of an iteration may be corrected, nothing else"
    assert not after.learning


def test_bytes_learnt_while_the_job_connects_are_corrected() -> None:
    """The job trains for only a part of its first window."""
    cluster = Cluster(spec(FOUR, []))
    for _ in range(12):
        if cluster.of_job.source is DemandSource.MEASURED:
            break
        cluster.train(0.8, {})
        cluster.train(1.2, REVERSED)
    learnt = cluster.of_job
    assert learnt.pairs == REVERSED.keys()
    assert min(link.bytes for link in learnt.virtual_links) < 0.8 * 1.5 * M
    for link in cluster.train(70, REVERSED).virtual_links:
        assert link.bytes == pytest.approx(1.5 * M, rel=0.05)


@pytest.mark.parametrize("iteration_s", [1.3, 6.0])
@pytest.mark.parametrize("bursts", [1.0, 0.4])
def test_bytes_of_steady_traffic_are_not_changed_again_and_again(iteration_s: float, bursts: float) -> None:
    cluster = Cluster(spec(FOUR, []), bursts=bursts, lag_s=0.5)
    cluster.iteration_s = iteration_s
    cluster.train(60, REVERSED)
    held = [cluster.train(INTERVAL_S, REVERSED).virtual_links for _ in range(45)]
    assert sum(a != b for a, b in pairwise(held)) <= 3


def test_half_the_bytes_are_found_in_iterations_of_a_minute() -> None:
    cluster = Cluster(spec(FOUR, collective("ring_all_reduce", M // 2)), bursts=0.3)
    cluster.iteration_s = 60.0
    cluster.until(lambda demand: demand.difference is not None, RIGHT, 300)


def test_many_jobs_are_judged_in_batches() -> None:
    """The judgement of all jobs at once would block the control loop."""
    demand, registry = MeasuredDemand(INTERVAL_S, 4032), JobRegistry(3 * BATCH)
    for number in range(3 * BATCH):
        ips = [f"10.{number}.0.{host}" for host in (1, 2)]
        registry.register(RegisterJob(spec(ips, job_id=f"job{number}")), 0.0)
    demand.follow(registry.jobs, 0.0)
    for at in (2.0, 4.0, 6.0):
        for number, job in enumerate(registry.jobs.values()):
            counted = tuple(Counted(*pair) for pair in sorted(job.pairs))
            counts = np.array([[at * 150_000, at * 100]] * len(counted))
            demand.counters.count(Dpid(number + 1), at, counted, counts)
        demand.update(frozenset(), at)
        judged = [sum(one.measurement is not None for one in demand.demands.values())]
        while demand.waiting:
            demand.judge_next(at + 0.1 * len(judged))
            judged.append(sum(one.measurement is not None for one in demand.demands.values()))
    assert judged == [BATCH, 2 * BATCH, 3 * BATCH]


@pytest.mark.parametrize("bursts", [1.0, 0.3])
@pytest.mark.parametrize("lag_s", [0.5, 0.1])
def test_lagging_counters_and_uneven_iterations_average_out(lag_s: float, bursts: float) -> None:
    cluster = Cluster(spec(FOUR, []), bursts=bursts, lag_s=lag_s)
    draw = random.Random(2)
    for _ in range(25):
        cluster.iteration_s = draw.uniform(1.2, 1.5)
        cluster.train(INTERVAL_S, REVERSED)
    assert bytes_error(cluster.of_job, REVERSED) < 0.03
    planned = cluster.of_job.virtual_links
    assert alike({(link.src_ip, link.dst_ip): link.bytes / sum(REVERSED.values()) for link in planned}, REVERSED, 0.03)


def test_slow_iterations_before_the_routes_were_right_do_not_make_those_after_them_larger() -> None:
    cluster = Cluster(spec(FOUR, []))
    cluster.iteration_s = 4.0
    cluster.train(8.1, REVERSED)
    cluster.iteration_s = 1.3
    cluster.train(2 * INTERVAL_S, REVERSED)
    for _ in range(10):
        cluster.train(INTERVAL_S, REVERSED)
        assert bytes_error(cluster.of_job, REVERSED) < 0.03


def test_bytes_that_change_are_not_averaged_with_those_before() -> None:
    cluster = Cluster(spec(FOUR, []), lag_s=0.5)
    cluster.train(60, REVERSED)
    twice = {pair: 2 * size for pair, size in REVERSED.items()}
    cluster.train(16, twice)
    assert bytes_error(cluster.of_job, twice) < 0.15
    cluster.train(50, twice)
    assert bytes_error(cluster.of_job, twice) < 0.03


@pytest.mark.parametrize("reports", [True, False])
def test_an_observed_job_that_changes_is_followed_without_flapping(reports: bool) -> None:
    cluster = Cluster(spec(FOUR, []), reports=reports)
    cluster.train(30, REVERSED)
    demand = cluster.train(30, BROADCAST)
    assert alike(shares(demand), BROADCAST)
    fewer = ring(FOUR[:3], -1)
    plans = set()
    for _ in range(20):
        plans.add(cluster.train(INTERVAL_S, fewer).virtual_links)
    assert alike(shares(cluster.of_job), fewer)
    assert len(plans) <= 4


def test_undeclared_traffic_is_found_before_three_long_iterations_are_over() -> None:
    cluster = Cluster(spec(FOUR))
    cluster.iteration_s = 5.0
    assert cluster.until(lambda demand: demand.difference is not None, REVERSED, 14) < 3 * cluster.iteration_s
    assert cluster.of_job.pairs == REVERSED.keys()


def test_a_job_with_long_iterations_whose_host_sends_more_is_learnt_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_job, "FEW_PAIRS", 0)
    cluster = Cluster(spec(FOUR))
    cluster.iteration_s = 5.0
    cluster.suspicious = frozenset(FOUR)
    cluster.until(lambda demand: demand.source is DemandSource.PROVISIONAL, BROADCAST, 10)
    cluster.until(lambda demand: demand.difference is not None, BROADCAST, 12)


@pytest.mark.parametrize(
    ("ratio", "said"),
    [(432.1, "430 times"), (1234.0, "1,200 times"), (0.468, "0.47 times"), (2.04, "2.0 times"), (9.96, "10.0 times")],
)
def test_factors_are_said_without_exponents(ratio: float, said: str) -> None:
    pair = FOUR[0], FOUR[1]
    one = Difference((Finding.OTHER_AMOUNTS,), (), ((pair, ratio),))
    assert difference_text(one) == f"{FOUR[0]} > {FOUR[1]} carries {said} what was announced"
    demand = JobDemand(DemandSource.MEASURED, VirtualLinks(), {}, difference=one._replace(factor=ratio))
    alarm = demand_alarm(JobId("g1"), demand)
    assert alarm is not None
    assert text(alarm) == (
        f"job g1 sends other amounts than it announced: all announced pairs carry {said} what was announced"
    )


def test_pairs_that_carry_nothing_less_and_more_are_told_apart() -> None:
    a, b, c, d = FOUR
    off = ((a, b), 0.001), ((a, c), 6.1), ((b, c), 0.0), ((b, d), 0.5), ((c, d), 2.0), ((d, a), 0.002)
    assert difference_text(Difference((Finding.OTHER_AMOUNTS,), (), off)) == (
        f"{a} > {b} carries nothing (and 2 more pairs); {b} > {d} carries 0.50 times what was announced; "
        f"{a} > {c} carries 6.1 times what was announced (and 1 more pair with more)"
    )


def test_no_factor_is_said_of_a_job_that_reports_no_iterations() -> None:
    """The job announced an all-to-all and runs a ring, so most pairs carry next to nothing.

    Without reported iterations only the proportions between pairs are known. The pairs of the ring then exceed the
    announcement only in comparison with the pairs that carry next to nothing."""
    sent = dict.fromkeys(permutations(FOUR, 2), 1.0) | RIGHT
    for reports in (True, False):
        demand = Cluster(spec(FOUR, collective("all_to_all")), reports=reports).train(60.0, sent)
        assert demand.difference is not None
        assert demand.difference.relative is not reports
        said = difference_text(demand.difference)
        assert (" times what was announced" in said) is reports
        assert (" of its announced bytes than other pairs do of theirs" in said) is not reports


def test_traffic_in_the_other_direction_is_said_once() -> None:
    a, b, c, d = FOUR
    findings = Finding.OTHER_TRAFFIC, Finding.OTHER_AMOUNTS
    undeclared = ((b, a), 4.2e6), ((c, b), 4.1e6)
    off = ((a, b), 0.001), ((b, c), 0.001)
    one = Difference(findings, undeclared, off, backwards=True, factor=0.001)
    backwards = "all announced pairs carry traffic in the other direction only"
    assert difference_text(one) == backwards
    more = one._replace(undeclared=(*undeclared, ((d, a), 1e6)))
    assert difference_text(more) == f"{backwards}; {d} > {a} carries 1 Mbit/s that are not announced"


def test_a_second_unknown_sender_on_one_pair_is_volume_beyond_the_announcement() -> None:
    cluster = Cluster(spec(FOUR))
    pair = FOUR[1], FOUR[2]
    twice = {**RIGHT, pair: 2 * RIGHT[pair]}
    cluster.until(lambda demand: demand.difference is not None, twice, 15)
    demand = cluster.train(10, twice)
    assert demand.difference is not None
    assert [found for found, _ in demand.difference.off] == [pair]
    assert demand.difference.factor is None
    assert alike(shares(demand), twice)


@pytest.mark.parametrize(("wrong", "seconds"), [(REVERSED, 30), (BROADCAST, 20)])
def test_a_job_whose_traffic_agrees_with_its_spec_again_is_planned_by_it_again(wrong: Traffic, seconds: float) -> None:
    """The job of the case ``BROADCAST`` is still being learnt when its traffic agrees with the spec again."""
    cluster = Cluster(spec(FOUR))
    cluster.train(seconds, wrong)
    cluster.until(lambda demand: demand.source is DemandSource.CONFIRMED, RIGHT, 20)
    assert not cluster.of_job.learning
    demand = cluster.train(40, RIGHT)
    assert demand.source is DemandSource.CONFIRMED
    assert demand.difference is None
    assert not demand.learning


def test_suspicion_that_finds_nothing_comes_back_ever_less_often() -> None:
    cluster = Cluster(spec(FOUR))
    cluster.suspicious = frozenset({FOUR[0]})
    learning = [cluster.train(INTERVAL_S, RIGHT).learning for _ in range(200)]
    starts = [i for i in range(1, 200) if learning[i] and not learning[i - 1]]
    gaps = [b - a for a, b in pairwise(starts)]
    assert cluster.of_job.difference is None
    assert gaps == sorted(gaps)
    assert len(gaps) <= 6


def test_a_job_on_many_hosts_is_not_spelt_out_pair_by_pair() -> None:
    """Lists of the job's 17 million pairs per NIC would fill the controller's memory."""
    rails = [[f"10.{nic}.{host // 250}.{host % 250}" for host in range(4096)] for nic in range(8)]
    more = {"rails": [{"endpoints": rail} for rail in rails[1:]]}
    large = {"job_id": "job", "endpoints": rails[0], **more}
    transfer = {"src": 0, "dst": 1, "bytes_per_iteration": M}
    for announced in ({}, {"transfers": [transfer]}, {"reports_connections": True}):
        cluster, one = Cluster(), JobSpec.parse({**large, **announced})
        tracemalloc.start()
        if announced:
            cluster.demand.refuse_unlearnable(one)
            cluster.begin(one)
            cluster.suspicious = frozenset(rails[0])
            cluster.train(10, {})
        else:
            with pytest.raises(InvalidInput, match="134184960 pairs"):
                cluster.demand.refuse_unlearnable(one)
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most_bytes < 100e6


@pytest.mark.parametrize("steady", [True, False])
def test_no_job_keeps_the_rules_for_learning_from_others(steady: bool) -> None:
    """The first job sends nothing, or never the same traffic twice."""
    others = ADDRESSES[4:]
    pairs = list(permutations(others, 2))
    cluster = Cluster(spec(others, [], job_id="first"), spec(FOUR, []), max_rules=12)
    for step in range(100):
        demand = cluster.train(INTERVAL_S, {**RIGHT, **({} if steady else {pairs[step % 12]: 1.0 * M})})
        assert sum(len(one.counted) for one in cluster.demand.demands.values() if one.learning) <= 12
    assert alike(shares(demand), RIGHT)


def test_a_tenant_does_not_wait_for_all_jobs_of_another_to_be_learnt() -> None:
    """Fifty observed jobs of another tenant registered before, all on the same four hosts; they send nothing."""
    cluster = Cluster(max_rules=24)
    cluster.begin(*(spec(ADDRESSES[4:], [], job_id=f"idle{number}") for number in range(50)), tenant="red")
    cluster.job = JobId("idle0")
    cluster.train(10, {})
    cluster.begin(spec(FOUR, []), tenant="blue")
    cluster.job = JobId("job")
    assert cluster.of_job.learning
    assert sum(one.learning for one in cluster.demand.demands.values()) == 2
    for number in range(5):  # when a job ends, another job moves to the front of the tenant's queue
        cluster.end(f"idle{number}")
        assert cluster.of_job.learning
    assert alike(shares(cluster.train(40, RIGHT)), RIGHT)


def test_a_tenant_that_ends_its_jobs_early_does_not_keep_its_turn_for_the_next_ones() -> None:
    """The rules suffice for one job at a time."""
    cluster = Cluster(max_rules=12)
    cluster.begin(*(spec(ADDRESSES[4:], [], job_id=f"idle{number}") for number in range(5)), tenant="red")
    cluster.job = JobId("idle0")
    cluster.train(10, {})
    cluster.begin(spec(FOUR, []), tenant="blue")
    cluster.job = JobId("job")
    assert not cluster.of_job.learning
    cluster.end("idle0")
    assert cluster.of_job.learning


@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.parametrize("reports", [True, False])
def test_a_pair_announced_with_hardly_any_bytes_is_planned_for_what_it_carries(reports: bool, phase: int) -> None:
    transfers = [
        {"src": 0, "dst": 1, "bytes_per_iteration": 1},
        {"src": 2, "dst": 3, "bytes_per_iteration": 2**40, "phase": phase},
    ]
    cluster = Cluster(JobSpec.parse({"job_id": "job", "endpoints": FOUR, "transfers": transfers}), reports=reports)
    demand = cluster.train(30, {(FOUR[0], FOUR[1]): M, (FOUR[2], FOUR[3]): M})
    in_phase = {link.phase: 0 for link in demand.virtual_links}
    for link in demand.virtual_links:
        in_phase[link.phase] = max(in_phase[link.phase], link.bytes)
    assert all(link.bytes > 0.9 * in_phase[link.phase] for link in demand.virtual_links)


def test_connections_between_other_hosts_are_counted_whenever_they_are_reported() -> None:
    cluster = Cluster(spec(FOUR, [], reports_connections=True))
    cluster.connect(FOUR[0], FOUR[1])
    alone = {(FOUR[0], FOUR[1]): 1.0 * M}
    assert alike(shares(cluster.train(30, alone)), alone)
    assert not cluster.of_job.learning
    cluster.connect(FOUR[2], FOUR[3])
    both = {**alone, (FOUR[3], FOUR[2]): 1.0 * M}
    assert cluster.train(10, both).pairs == both.keys()
    assert alike(shares(cluster.train(50, both)), both, within=0.1)


def test_a_job_that_reports_other_connections_all_the_time_is_judged() -> None:
    cluster = Cluster(spec(FOUR, reports_connections=True))
    for number in range(100):
        cluster.connect(FOUR[0], FOUR[1], 1000 + number)
        demand = cluster.train(0.5, REVERSED)
    assert alike(shares(demand), REVERSED)


def test_an_amount_at_the_limit_does_not_go_back_and_forth() -> None:
    cluster = Cluster(spec(FOUR), bursts=0.5, lag_s=0.5)
    draw = random.Random(3)
    more = {**RIGHT, (FOUR[1], FOUR[2]): 1.4 * RIGHT[FOUR[1], FOUR[2]]}
    sources = []
    for _ in range(200):
        cluster.iteration_s = 1.3 * draw.uniform(0.85, 1.15)
        sources.append(cluster.train(INTERVAL_S, more).source)
    assert sum(a is not b for a, b in pairwise(sources)) <= 2


ACROSS = dict.fromkeys(((FOUR[0], FOUR[2]), (FOUR[2], FOUR[0]), (FOUR[1], FOUR[3]), (FOUR[3], FOUR[1])), float(M))


@pytest.mark.parametrize(
    ("announced", "traffic", "known"),
    [
        (spec(FOUR), RIGHT, DemandSource.CONFIRMED),
        (spec(FOUR), REVERSED, DemandSource.MEASURED),
        (spec(FOUR, []), RIGHT, DemandSource.MEASURED),
        (spec(FOUR, [], reports_connections=True), RIGHT, DemandSource.MEASURED),
    ],
    ids=["right", "wrong", "observed", "observed by its connections"],
)
def test_another_lease_or_number_of_subflows_is_no_reason_to_measure_anew(
    announced: JobSpec, traffic: Traffic, known: DemandSource
) -> None:
    cluster = Cluster(announced)
    if announced.reports_connections:
        for port, (src, dst) in enumerate(RIGHT):
            cluster.connect(src, dst, port)
    before = cluster.train(150, traffic)
    assert before.source is known
    for change in ({"lease_s": 99.0}, {"max_subflows": 4}, {"striping": "even", "lease_s": 60.0}):
        cluster.update(**change)
        assert cluster.of_job is before
    after = cluster.train(20, traffic)
    assert (after.source, after.learning) == (known, False)
    assert alike(shares(after), traffic)
    anew = {"endpoints": ADDRESSES[1:5]} if announced.observed else {"transport": "roce_v2"}
    cluster.update(**anew)
    assert cluster.of_job.source is (DemandSource.LEARNING if announced.observed else DemandSource.DECLARED)


def test_connections_whose_report_is_undone_are_those_before() -> None:
    cluster = Cluster(spec(FOUR, [], reports_connections=True))
    cluster.connect(FOUR[0], FOUR[1])
    before = cluster.registry.known(cluster.job)
    cluster.connect(FOUR[0], FOUR[1], 1001)
    cluster.registry.restore({cluster.job: before})
    cluster.demand.follow(cluster.registry.jobs, cluster.now)
    assert {key[2:] for key in cluster.demand.counters.connections} == {(1000, 2000), (2000, 1000)}


def test_what_other_jobs_sent_before_is_not_a_new_jobs() -> None:
    cluster = Cluster(spec(FOUR, [], job_id="earlier"))
    cluster.job = JobId("earlier")
    cluster.train(150, RIGHT)
    cluster.begin(spec(FOUR, []))
    cluster.job = JobId("job")
    demand = cluster.train(20, {**RIGHT, **ACROSS})
    assert demand.pairs == RIGHT.keys() | ACROSS.keys()


def test_what_its_rules_counted_before_a_job_came_back_is_not_what_it_sends() -> None:
    """A training program that restarts registers again at once, before its rules are removed."""
    cluster = Cluster(spec(FOUR, []))
    cluster.train(150, RIGHT)
    cluster.end("job")
    cluster.begin(spec(FOUR, []))
    assert alike(shares(cluster.train(20, ACROSS)), ACROSS)


def test_learning_waits_for_rules_and_takes_no_pairs_of_other_jobs() -> None:
    other = spec(ADDRESSES[2:5], job_id="other")
    cluster = Cluster(other, spec(FOUR, []), max_rules=8)
    assert not cluster.of_job.learning, "12 pairs, less the two directions of one that the other job announced"
    roomy = Cluster(other, spec(FOUR, []), max_rules=10)
    assert roomy.of_job.learning
    assert (FOUR[2], FOUR[3]) not in roomy.of_job.counted
    assert (FOUR[3], FOUR[2]) not in roomy.of_job.counted


def test_a_job_that_waits_needs_the_pairs_that_another_job_gives_up() -> None:
    """Six of the waiting job's 12 pairs are free at first, and all 12 later; there are rules for ten pairs."""
    cluster = Cluster(spec(FOUR[:3], job_id="other"), spec(ADDRESSES[4:7], [], job_id="first"), max_rules=10)
    cluster.begin(spec(FOUR, []))
    assert cluster.demand.demands[JobId("first")].learning
    assert not cluster.of_job.learning
    cluster.end("other")
    cluster.end("first")
    assert not cluster.of_job.learning


@pytest.mark.parametrize("seed", range(4))
def test_any_matrix_of_an_observed_job_is_learnt(seed: int) -> None:
    draw = random.Random(seed)
    ips = draw.sample(ADDRESSES, draw.randint(3, 8))
    pairs = draw.sample(list(permutations(ips, 2)), draw.randint(2, len(ips)))
    traffic = {pair: draw.choice([0.2, 1.0, 1.0, 3.0]) * M for pair in pairs}
    cluster = Cluster(spec(ips, []), reports=draw.random() < 0.5, bursts=draw.choice([0.3, 1.0]))
    assert alike(shares(cluster.train(30, traffic)), traffic, within=0.09)


FORWARD, BACKWARD, PAIR = ring(FOUR), ring(FOUR, -1), ring(FOUR[:2])
FOUR_TIMES = [{pair: 4 * size for pair, size in traffic.items()} for traffic in (FORWARD, BACKWARD)]


@pytest.mark.parametrize(
    ("before", "iteration"),
    [
        (
            FORWARD | {pair: 3 * size for pair, size in BACKWARD.items()},
            [(1, {}), *zip((1, 3), FOUR_TIMES, strict=True)],
        ),
        ({}, [(20, PAIR), (6, BACKWARD)]),
    ],
    ids=["5 s", "26 s of two phases over different pairs"],
)
def test_an_observed_job_whose_iterations_are_longer_than_a_short_window_settles(
    before: Traffic, iteration: list[tuple[float, Traffic]]
) -> None:
    """The job reports no iterations; its first plan is for traffic from before the training.

    Amounts counted anew over 4 s cover only a part of an iteration, so they differ from window to window."""
    cluster = Cluster(spec(FOUR, []), reports=False)
    cluster.train(7 if before else 0, before)
    plans = set()
    for number in range(40):
        for seconds, traffic in iteration:
            cluster.train(seconds, traffic)
        plans |= {cluster.of_job.virtual_links} if number >= 20 else set()
    assert cluster.of_job.pairs == {pair for _, traffic in iteration for pair in traffic}
    assert len(plans) == 1


# ---- jobs that may soon announce another spec


def test_a_provisional_announcement_holds_until_something_else_is_counted_and_raises_no_alarm() -> None:
    cluster = Cluster(spec(FOUR, provisional=True))
    assert cluster.of_job.source is DemandSource.PROVISIONAL
    assert cluster.of_job.pairs == RIGHT.keys()
    for _ in range(20):
        assert cluster.train(INTERVAL_S, REVERSED).difference is None
    learnt = cluster.of_job
    assert learnt.source is DemandSource.MEASURED
    assert alike(shares(learnt), REVERSED)
    cluster.update(provisional=False)
    assert cluster.of_job.difference is not None
    assert cluster.of_job.virtual_links is learnt.virtual_links


def test_a_provisional_announcement_that_is_right_stays_confirmed_when_it_is_made_final() -> None:
    cluster = Cluster(spec(FOUR, provisional=True))
    cluster.update(provisional=False)
    assert cluster.of_job.source is DemandSource.DECLARED
    cluster.update(provisional=True)
    demand = cluster.train(20, RIGHT)
    assert demand.source is DemandSource.CONFIRMED
    cluster.update(provisional=False)
    after = cluster.of_job
    assert after.source is DemandSource.CONFIRMED
    assert after.measurement is demand.measurement


def test_other_traffic_than_announced_provisionally_is_judged_anew() -> None:
    cluster = Cluster(spec(FOUR, provisional=True))
    cluster.train(20, REVERSED)
    groups = [{"name": "dp", "ranks": [3, 2, 1, 0]}]
    cluster.update(provisional=False, groups=groups, collectives=collective())
    assert cluster.of_job.source is DemandSource.DECLARED
    demand = cluster.train(20, REVERSED)
    assert (demand.source, demand.difference) == (DemandSource.CONFIRMED, None)
