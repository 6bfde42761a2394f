"""Tests of the compute and communication times of a job that the planner gets (``controller.contention.timing``)."""

from typing import Any

import pytest

from controller.contention.rhythm import Rhythm
from controller.contention.timing import UNKNOWN, Measured, measured, timing, with_common_periods
from controller.fabric.topology import Dpid, Host, PortNo, PortRef
from controller.jobs.messages import RegisterJob
from controller.jobs.registry import JobRegistry
from controller.planning.problem import Timing
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from tests.support.job_specs import job_spec, sends

IPS = ["10.0.1.1", "10.0.2.1"]
HOSTS = {ip: Host(ip, None, PortRef(Dpid(n), PortNo(1)), 8e6) for n, ip in enumerate(IPS)}
TRAFFIC = sends("reduce_scatter", 2_000_000), sends("all_gather", 2_000_000, phase=2)
"""Two phases of 1 MB in each direction, which take 1 s each without headers."""


def found(
    measured: Measured = UNKNOWN, may_keep: bool = True, declared_work: bool = True, **spec: Any
) -> Timing | None:
    job = JobRegistry(9, 999).register(RegisterJob(job_spec("job", IPS, *TRAFFIC, **spec)), 0.0)
    return timing(job, HOSTS, measured, may_keep, declared_work)


def times(timing: Timing | None) -> list[tuple[int, float]]:
    assert timing
    return [(each.phase, each.compute_s) for each in timing.phases]


def test_without_announced_or_measured_computing_nothing_is_known() -> None:
    assert found() is None
    assert found(Measured(None, True)) is None


def test_announced_computing_precedes_the_phase_that_it_names() -> None:
    compute = [{"seconds": 1}, {"seconds": 2, "before": 1}, {"seconds": 4, "before": 3}, {"seconds": 8, "phase": 2}]
    timed = found(compute=compute)
    assert times(timed) == [(0, 5.0), (1, 2.0)]
    assert timed
    assert timed.phases[1].ideal_s == 8.0, "computing overlaps with it"
    assert timed.phases[0].ideal_s == pytest.approx(1.0, rel=0.1)
    assert (timed.gpus, timed.work, timed.weight) == (2, 2 * 15.0, 1.0)
    assert not timed.keeps_slots, "it is not known to be regular"


def test_measured_computing_that_is_about_the_announced_one_leaves_it() -> None:
    compute = [{"seconds": 1}, {"seconds": 2, "before": 2}]
    for measured_s in (2.96, 3.04):
        assert times(found(Measured(measured_s, True), compute=compute)) == [(0, 1.0), (1, 2.0)]


def test_measured_computing_corrects_the_announced_one() -> None:
    compute = [{"seconds": 1}, {"seconds": 2, "before": 2}]
    assert times(found(Measured(6.0, True), compute=compute)) == [(0, 2.0), (1, 4.0)]
    assert times(found(Measured(6.0, True))) == [(0, 6.0), (1, 0.0)]


def test_a_job_keeps_slots_if_it_is_regular_waits_and_may() -> None:
    regular = Measured(1.0, True)
    kept = [
        found(regular, keeps_slots=True),
        found(regular),
        found(regular._replace(is_regular=False), keeps_slots=True),
        found(regular, may_keep=False, keeps_slots=True),
    ]
    assert [timed and timed.keeps_slots for timed in kept] == [True, False, False, False]


def test_what_the_announcement_says_about_its_worth_is_taken() -> None:
    timed = found(Measured(3.0, True), gpus=16, weight=2.0)
    assert timed
    assert (timed.gpus, timed.work, timed.weight) == (16, 48.0, 2.0)
    of_work = found(Measured(3.0, True), work_per_iteration=1e15)
    assert of_work
    assert of_work.work == 1e15
    distrusted = found(Measured(3.0, True), declared_work=False, gpus=16, weight=2.0, work_per_iteration=1e15)
    assert distrusted
    assert (distrusted.work, distrusted.weight) == (48.0, 1.0)


def test_the_first_parallelization_says_how_long_it_computes() -> None:
    ways = [{"name": "a", "transfers": [{"src": 0, "dst": 1, "bytes_per_iteration": 1}], "compute": [{"seconds": 3}]}]
    spec = job_spec("job", IPS).model_dump(exclude={"groups"}) | {"parallelizations": ways}
    job = JobRegistry(9, 999).register(RegisterJob(type(job_spec("job", IPS)).parse(spec)), 0.0)
    assert times(timing(job, HOSTS, UNKNOWN, may_keep=True)) == [(0, 3.0)]


def test_an_observed_job_has_no_times() -> None:
    job = JobRegistry(9, 999).register(RegisterJob(job_spec("job", IPS)), 0.0)
    assert timing(job, HOSTS, Measured(1.0, True), may_keep=True) is None


def test_periods_that_do_not_surely_differ_are_made_equal() -> None:
    names = [JobId(name) for name in "abcd"]
    computed_s = dict(zip(names, (1.0, 1.02, 1.1, 1.2), strict=True))
    of = {name: found(Measured(s, True), keeps_slots=name != "d") for name, s in computed_s.items()}
    timings = {name: timing for name, timing in of.items() if timing}
    errors = {name: Measured(s, True, 0.01) for name, s in computed_s.items()}
    longer = with_common_periods(timings, errors)
    assert [times(longer[name])[0][1] for name in names] == pytest.approx([1.02, 1.02, 1.1, 1.2])
    uncertain = {name: each._replace(error_s=0.06) for name, each in errors.items()}
    longer = with_common_periods(timings, uncertain)
    assert [times(longer[name])[0][1] for name in names] == pytest.approx([1.1, 1.1, 1.1, 1.2])


def test_the_planner_is_told_new_times_only_if_they_differ() -> None:
    rhythm = Rhythm().and_now(IterationTime(n, 1.0, 0.4, 100.0 + n, 0.6) for n in range(20))
    now = measured(rhythm, 0.1)
    assert now == pytest.approx((0.6, True, 0.0), abs=1e-9)
    assert measured(Rhythm(), 0.1) == UNKNOWN
    assert not now.differs(now._replace(computed_s=0.62), error=0.02)
    assert not now.differs(now._replace(computed_s=0.605))
    assert not UNKNOWN.differs(UNKNOWN)
    for other in (
        UNKNOWN,
        now._replace(computed_s=0.62),
        now._replace(computed_s=None),
        now._replace(is_regular=False),
    ):
        assert now.differs(other)
