"""A right announcement is not called wrong because of pauses, faults, silence, bursts, or other jobs.

Another job may have had the same hosts before, or may send on them in the opposite direction."""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from controller.alarms import text
from controller.core.alarms import demand_alarm
from controller.demand.job_demand import DemandSource, Difference, Finding
from controller.demand.judgement import Judge
from controller.demand.payload_windows import Spans, Window
from controller.fabric.topology import Dpid
from controller.jobs.messages import RegisterJob
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from tests.support.training_cluster import (
    ADDRESSES,
    FOUR,
    INTERVAL_S,
    REVERSED,
    RIGHT,
    Cluster,
    M,
    alike,
    collective,
    ring,
    shares,
    spec,
)


@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("bursts", [1.0, 0.3])
@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_a_right_announcement_is_confirmed_and_never_doubted(reports: bool, bursts: float, loss: float) -> None:
    cluster = Cluster(spec(FOUR), reports=reports, bursts=bursts)
    for _ in range(60):
        demand = cluster.train(INTERVAL_S, RIGHT, loss)
        assert demand.difference is None
        assert not demand.learning
        assert demand.virtual_links == cluster.registry.jobs[JobId("job")].virtual_links
    assert demand.source is DemandSource.CONFIRMED


@pytest.mark.parametrize("after_s", [0.1, 2.1, 8.1])
def test_a_job_that_is_started_again_is_not_judged_by_rules_of_the_one_before(after_s: float) -> None:
    """The new job's own rules are installed late; bytes that the job sends until then are not counted."""
    cluster = Cluster(spec(FOUR, job_id="before"), spec(ADDRESSES[4:]))
    cluster.iteration_s = 0.3
    cluster.train(20, RIGHT)
    cluster.end("before")
    cluster.train(after_s, {})
    cluster.begin(spec(FOUR, job_id="again"))
    for _ in range(12):
        cluster.train(INTERVAL_S, RIGHT)
        assert cluster.demand.demands[JobId("again")].difference is None
    assert cluster.demand.demands[JobId("again")].source is DemandSource.CONFIRMED


@pytest.mark.parametrize("iteration_s", [0.7, 1.1, 1.9])
def test_a_job_that_begins_to_train_some_time_after_it_is_counted_is_not_doubted(iteration_s: float) -> None:
    """Windows of counters that begin before the first iteration contain iterations only in their later part.

    Leaves are polled at different times, so their windows contain different parts of iterations."""
    for tenths in range(0, 60, 6):
        cluster = Cluster(spec(FOUR), lag_s=0.5, apart_s=0.5)
        cluster.iteration_s = iteration_s
        cluster.train(tenths / 10 + 0.1, RIGHT, pause=True)
        for _ in range(6):
            assert cluster.train(INTERVAL_S, RIGHT).difference is None, tenths


def test_a_job_that_pauses_or_has_long_iterations_is_not_doubted() -> None:
    cluster = Cluster(spec(FOUR), bursts=0.5)
    for seconds in (3, 7, 4, 20, 5, 2, 11):
        assert cluster.train(seconds + 4, RIGHT).difference is None
        assert not cluster.train(seconds, RIGHT, pause=True).contradicted
    slow = Cluster(spec(FOUR), reports=False, bursts=0.2)
    slow.iteration_s = 31.0
    for _ in range(100):
        assert not slow.train(INTERVAL_S, RIGHT).contradicted


def test_a_job_that_stops_is_silent_and_raises_no_alarm_until_it_contradicts_its_announcement() -> None:
    cluster = Cluster(spec(FOUR))
    idle = cluster.train(60, {})
    assert (idle.source, idle.difference) == (DemandSource.DECLARED, None)
    assert cluster.train(30, RIGHT).difference is None
    stopped = cluster.train(30, {}, pause=True)
    assert stopped.difference == Difference((Finding.SILENT,))
    assert demand_alarm(cluster.job, stopped) is None
    assert cluster.train(30, RIGHT).difference is None
    wrong = cluster.train(30, REVERSED)
    alarm = demand_alarm(cluster.job, wrong)
    assert alarm is not None
    assert text(alarm).startswith("job job sends other traffic than it announced: all announced pairs carry traffic in")
    assert wrong.measurement
    assert wrong.measurement.undeclared_fraction == 1
    stopped = cluster.train(30, {}, pause=True)
    assert stopped.measurement
    assert stopped.measurement.undeclared_fraction == 0, "there is no payload"
    alarm = demand_alarm(cluster.job, stopped)
    assert alarm is not None
    assert text(alarm).startswith("job job has stopped sending; before, it sent other traffic than it announced: all")


@pytest.mark.parametrize("killed_at", [30.4, 31.0, 31.7])
def test_a_job_that_is_killed_is_slower_or_silent_and_not_wrong(killed_at: float) -> None:
    """The job stops within an iteration, which is never reported."""
    cluster = Cluster(spec(FOUR), lag_s=0.5)
    cluster.iteration_s = 3.0
    cluster.train(killed_at, RIGHT)
    findings = [cluster.train(1, {}, pause=True).difference for _ in range(60)]
    assert {finding for one in findings if one for finding in one.findings} <= {Finding.SLOWER, Finding.SILENT}
    assert findings[-1] == Difference((Finding.SILENT,))


@pytest.mark.parametrize("seconds", [1.5, 30])
def test_an_iteration_that_takes_longer_than_the_others_is_found_to_be_slower(seconds: float) -> None:
    """The first iteration takes 1.3 s."""
    cluster = Cluster(spec(FOUR))
    cluster.train(seconds, RIGHT)
    cluster.iteration_s = 40.0
    assert cluster.train(20, RIGHT).difference == Difference((Finding.SLOWER,))
    cluster.train(30, RIGHT)
    cluster.iteration_s = 1.3
    assert cluster.train(30, RIGHT).difference is None


@pytest.mark.parametrize("says_when", [True, False])
@pytest.mark.parametrize("tenths", range(0, 20, 6))
def test_iterations_that_become_faster_than_any_before_are_not_doubted(tenths: int, says_when: bool) -> None:
    """The first iterations take long, because programs are compiled in them.

    Iterations of the last two seconds are not reported yet when their bytes are counted."""
    cluster = Cluster(spec(FOUR), lag_s=0.5)
    cluster.iteration_s = 8.0
    assert not cluster.train(24 + tenths / 10, RIGHT).contradicted
    cluster.iteration_s, cluster.reports = 0.4, False
    for _ in range(20):
        new = []
        for _ in range(5):
            assert not cluster.train(0.4, RIGHT).contradicted
            new.append(IterationTime(cluster.done, 0.4, 0.4, cluster.now if says_when else None))
        cluster.demand.reported(cluster.job, new, cluster.now)
    assert cluster.of_job.source is DemandSource.CONFIRMED


def test_pairs_that_send_in_bursts_at_random_instants_are_not_doubted() -> None:
    """Chance decides in an all-to-all which of the senders to a host comes first.

    A pair may therefore send two times, or four times, in three iterations."""
    cluster, draw = Cluster(spec(ADDRESSES, collective("all_to_all", 8 * M)), lag_s=0.5), random.Random(4)
    cluster.iteration_s = 1.5
    pairs = list(permutations(ADDRESSES, 2))
    for _ in range(200):
        tenth = [draw.randrange(15) for _ in pairs]
        for now in range(15):
            demand = cluster.train(0.1, {pair: 15.0 * M for pair, at in zip(pairs, tenth, strict=True) if at == now})
            assert not demand.contradicted


@pytest.mark.parametrize(("disconnected", "counts_from_zero"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("away_s", [1, 7, 30])
@pytest.mark.parametrize("reports", [True, False])
def test_a_leaf_that_is_away_for_a_time_raises_no_doubt(
    reports: bool, away_s: float, counts_from_zero: bool, disconnected: bool
) -> None:
    cluster = Cluster(spec(FOUR), reports=reports, lag_s=0.5)
    cluster.train(30, RIGHT)
    cluster.away = {FOUR[1]}
    if disconnected:
        cluster.demand.counters.switch_left(Dpid(ADDRESSES.index(FOUR[1]) + 1))
    assert cluster.train(away_s, RIGHT).difference is None
    cluster.away = set()
    if counts_from_zero:
        of_leaf = {pair: tuple(cluster.sent[pair]) for pair in cluster.rules if pair[0] == FOUR[1]}
        cluster.rules |= of_leaf  # type: ignore[arg-type]
    for _ in range(20):
        assert cluster.train(INTERVAL_S, RIGHT).difference is None
    assert cluster.of_job.source is DemandSource.CONFIRMED


@pytest.mark.parametrize("reports", [True, False])
def test_a_job_with_flows_without_a_path_is_not_doubted(reports: bool) -> None:
    """The other flows send less than announced until they wait for the flows without a path."""
    cluster = Cluster(spec(FOUR), reports=reports)
    cluster.train(30, RIGHT)
    cluster.without_path = {cluster.job}
    stopping = {pair: size / 3 * (number + 1) for number, (pair, size) in enumerate(RIGHT.items())}
    assert cluster.train(30, stopping).difference is None
    assert cluster.train(60, {}, pause=True).difference is None
    cluster.without_path = set()
    assert cluster.train(30, RIGHT).difference is None
    assert cluster.train(30, stopping).difference is not None, "with paths it is judged"


def test_an_iteration_that_a_fault_has_held_up_is_not_doubted() -> None:
    cluster, traffic = Cluster(spec(FOUR)), ring(FOUR)
    cluster.train(60, traffic)
    cluster.iteration_s = 3.5  # fewer links are left
    cluster.without_path = {cluster.job}
    began = cluster.now
    cluster.train(40, traffic, pause=True)
    cluster.without_path = set()
    cluster.train(20, traffic, pause=True)  # TCP retries at growing intervals
    cluster.reports = False
    cluster.train(cluster.iteration_s, traffic)
    cluster.reports = True
    took_s = cluster.now - began
    cluster.demand.reported(cluster.job, [IterationTime(cluster.done, took_s, took_s)], cluster.now)
    assert not any(cluster.train(INTERVAL_S, traffic).contradicted for _ in range(30))
    assert cluster.of_job.source is DemandSource.CONFIRMED


def test_what_is_counted_is_not_known_while_a_switch_does_not_answer() -> None:
    cluster = Cluster(spec(FOUR))
    assert cluster.train(30, RIGHT).measurement is not None
    cluster.away = {FOUR[1]}
    for _ in range(60):
        demand = cluster.train(INTERVAL_S, RIGHT)
        assert demand.difference is None
    assert demand.measurement is None
    assert demand.source is DemandSource.CONFIRMED
    cluster.away = set()
    assert cluster.train(30, RIGHT).measurement is not None


def test_a_leaf_that_stays_away_does_not_keep_its_jobs_from_being_judged() -> None:
    cluster = Cluster(spec(FOUR))
    cluster.train(30, RIGHT)
    cluster.away = {FOUR[3]}
    cluster.demand.counters.switch_left(Dpid(ADDRESSES.index(FOUR[3]) + 1))
    cluster.until(lambda demand: demand.difference is not None, ring(FOUR[:3], -1), 90)


def test_pairs_that_are_counted_for_different_times_are_compared_per_second() -> None:
    pairs = [("a", "b"), ("b", "c")]
    judge = Judge(pairs, {pair: [(0, 1000)] for pair in pairs}, None)
    seconds, bps = np.array([[6.0, 3.0]]), np.full(2, 8e4)
    spans = Spans(1e4 * seconds, seconds, 0.0, None, None, reported=np.array([False]))
    assert judge.against_spec(Window(0.0, bps, bps, 6.0, None, begun=True, whole=True), spans).clean


@pytest.mark.parametrize("duration_s", [0.0, 5e-324, 1e-9, 1e300, 1.7e308, float("nan"), float("inf")])
@pytest.mark.parametrize("collectives", [None, []])
def test_times_that_cannot_be_are_left_out(duration_s: float, collectives: list[dict[str, Any]] | None) -> None:
    cluster = Cluster(spec(FOUR, collectives), reports=False)
    impossible = [IterationTime(number, duration_s, 1.0) for number in range(3)]
    for _ in range(15):
        cluster.demand.reported(JobId("job"), impossible, cluster.now)
        cluster.train(INTERVAL_S, REVERSED)
    assert alike(shares(cluster.of_job), REVERSED)
    assert not cluster.of_job.per_iteration


BOTH = {**RIGHT, **REVERSED}
OTHER = JobId("other")
OPPOSITE = spec(FOUR[::-1], job_id="other")
"""A ring over ``FOUR``, in the direction opposite to the ring of ``spec(FOUR)``."""


def agreed(cluster: Cluster, seconds: float) -> None:
    """Train in both directions, and assert that neither job is doubted."""
    for _ in range(round(seconds / INTERVAL_S)):
        cluster.train(INTERVAL_S, BOTH)
        assert not any(one.difference for one in cluster.demand.demands.values())
    assert cluster.demand.demands[OTHER].source is DemandSource.CONFIRMED


def test_jobs_on_the_same_hosts_whose_rings_are_opposite_are_not_taken_for_each_other() -> None:
    cluster = Cluster(spec(FOUR), OPPOSITE)
    agreed(cluster, 30)
    assert cluster.of_job.source is DemandSource.CONFIRMED


def test_traffic_in_the_other_direction_is_the_jobs_until_another_one_announces_it_and_when_that_has_left() -> None:
    cluster = Cluster(spec(FOUR))
    cluster.train(20, RIGHT)
    cluster.begin(OPPOSITE)
    for _ in range(15):
        assert cluster.train(INTERVAL_S, BOTH).difference is None
    cluster.end("other")
    for _ in range(10):
        assert cluster.train(INTERVAL_S, RIGHT).difference is None, "what was counted for the other one is not its own"
    assert cluster.of_job.source is DemandSource.CONFIRMED
    cluster.until(lambda demand: demand.difference is not None, BOTH, 15)
    cluster.begin(OPPOSITE)
    assert cluster.train(30, BOTH).difference is None, "announced late"


@pytest.mark.parametrize("seconds", [4, 6])
@pytest.mark.parametrize("provisional", [False, True])
def test_what_an_observed_job_was_found_to_send_stays_its_own_when_the_opposite_is_announced(
    seconds: float, provisional: bool
) -> None:
    cluster = Cluster(spec(FOUR, []))
    cluster.train(seconds, RIGHT)
    assert cluster.of_job.pairs == RIGHT.keys()
    cluster.begin(spec(FOUR[::-1], job_id="other", provisional=provisional))
    agreed(cluster, 30)
    assert cluster.of_job.source is DemandSource.MEASURED
    assert cluster.of_job.pairs == RIGHT.keys()


def test_what_an_observed_job_was_found_to_send_is_its_own_after_a_restart() -> None:
    before = Cluster(spec(FOUR, []))
    held = before.train(20, RIGHT).held
    assert held is not None
    cluster = Cluster()
    for one in (spec(FOUR, []), OPPOSITE):
        cluster.registry.register(RegisterJob(one), cluster.now)
    cluster.demand.follow(cluster.registry.jobs, cluster.now, {cluster.job: held})
    agreed(cluster, 30)
    assert cluster.of_job.pairs == RIGHT.keys()


def observed_and_opposite() -> Cluster:
    """Return a cluster whose observed job was learnt before the opposite direction was announced."""
    cluster = Cluster(spec(FOUR, []))
    cluster.train(20, RIGHT)
    cluster.begin(OPPOSITE)
    agreed(cluster, 20)
    return cluster


def test_what_an_observed_job_was_found_to_send_is_anybodys_when_it_has_left() -> None:
    cluster = observed_and_opposite()
    cluster.end("job")
    cluster.job = OTHER
    cluster.train(10, REVERSED)
    assert cluster.of_job.source is DemandSource.CONFIRMED, "what was counted for the first job is not its own"
    cluster.until(lambda demand: demand.difference is not None, BOTH, 15)


def test_an_observed_job_finds_the_opposite_direction_when_the_job_that_announced_it_has_left() -> None:
    cluster = observed_and_opposite()
    cluster.end("other")
    for _ in range(5):
        assert cluster.train(INTERVAL_S, RIGHT).pairs == RIGHT.keys()
    cluster.until(lambda demand: demand.pairs == BOTH.keys(), BOTH, 15)


def test_pairs_that_an_observed_job_sends_on_are_another_jobs_as_long_as_that_announces_the_same() -> None:
    cluster = Cluster(spec(FOUR, []))
    cluster.train(20, RIGHT)
    cluster.begin(spec(FOUR, job_id="other"))
    assert cluster.train(20, RIGHT).measurement is None
    assert cluster.demand.demands[OTHER].source is DemandSource.CONFIRMED
    cluster.end("other")
    demand = cluster.train(10, RIGHT)
    assert demand.pairs == RIGHT.keys()
    assert demand.measurement is not None


def test_an_update_to_the_opposite_direction_is_counted_for_the_job_that_announced_it() -> None:
    cluster = observed_and_opposite()
    cluster.job = OTHER
    cluster.update(collectives=collective("broadcast"))
    cluster.update(collectives=collective())
    agreed(cluster, 30)
    cluster.job = JobId("job")
    assert cluster.of_job.pairs == RIGHT.keys()
