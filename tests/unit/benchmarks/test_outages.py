"""Verdicts of ``benchmarks outages``: iterations in windows, moved routes, and missed targets."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.live.outages_report import Outage, Paths, build, changed, means, ratios, took_in
from mininet_topos.trainer.log import Iteration, RankLog

QUIET = [1.0] * 8
PAIR, OTHER = ("a", "b"), ("b", "a")
HERE: Paths = {PAIR: ("leaf1", "spine1", "leaf2")}
THERE: Paths = {PAIR: ("leaf1", "spine2", "leaf2")}
NOWHERE: Paths = {PAIR: ()}
DID = {"moved": 0, "unpinned": 0, "rules": 0, "registered": 0, "ended": 0, "plans": 4}
OUTAGE = Outage("killed", 30.0, 5.0, (0.0, 8.0), (8.0, 18.0), (18.0, 26.0), DID, {}, ())


def log_of(took_s: Sequence[float], job_id: str = "ring1", rank: int = 0, ok: bool = True) -> RankLog:
    ends = [sum(took_s[: n + 1]) for n in range(len(took_s))]
    iterations = [
        Iteration(n, end - took, end, ok, (), took, 1) for n, (took, end) in enumerate(zip(took_s, ends, strict=True))
    ]
    return RankLog(job_id, rank, "10.0.1.1", tuple(iterations), None)


def test_five_consecutive_iterations_are_compared() -> None:
    assert means([1, 1, 1, 1, 6, 1]) == [2, 2]
    assert means([1, 1, 1, 1]) == []


def test_an_iteration_belongs_to_the_window_that_it_ends_in() -> None:
    log = log_of([1.0, 1.0, 2.0, 1.0])  # iterations end at 1, 2, 4 and 5 s
    assert [took_in(log, window) for window in ((0, 2), (2, 4.5), (4.5, 9))] == [[1, 1], [2], [1]]


def test_the_highest_mean_is_compared_with_the_median_of_the_undisturbed_ones() -> None:
    slow_twice = [1.0, 1.0, 1.5, 1.5, 1.0, 1.0, 1.0]
    disturbed, usual = ratios(QUIET, slow_twice, [1.0, 1.0, 1.0, 1.0, 1.0, 1.25])
    assert (disturbed, usual) == pytest.approx((1.2, 1.05))


def test_a_stop_of_the_training_is_seen_however_many_iterations_are_right() -> None:
    assert ratios(QUIET, [*QUIET * 10, 30.0, *QUIET], QUIET)[0] == pytest.approx(6.8)


def test_too_few_iterations_miss_every_target() -> None:
    for short in range(3):
        windows = [QUIET[:4] if part == short else QUIET for part in range(3)]
        assert ratios(*windows) == (math.inf, math.inf)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], (0, 0)),
        ([HERE, HERE], (0, 0)),
        ([THERE], (1, 0)),
        ([THERE, HERE], (2, 0)),
        ([NOWHERE, NOWHERE, HERE], (0, 1)),
        ([NOWHERE, THERE], (1, 1)),
        ([{OTHER: ("leaf2", "spine1", "leaf1")}], (1, 0)),
    ],
)
def test_moved_and_unpinned_routes_are_counted(told: Sequence[Paths], expected: tuple[int, int]) -> None:
    assert changed(HERE, told) == expected


def test_nothing_is_missed_when_all_is_well() -> None:
    found = build([OUTAGE], [log_of([1.0] * 26)])
    assert found["missed"] == []
    assert found["outages"][0]["ratio"] == 1.0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"back_s": None}, "did not have all jobs again"),
        ({"did": DID | {"registered": 1}}, "registered 1"),
        ({"did": DID | {"ended": 1}}, "ended 1"),
        ({"did": DID | {"moved": 2}}, "moved 2"),
        ({"did": DID | {"rules": 3}}, "rules 3"),
        ({"left": ("spine1 is down",)}, "spine1 is down"),
    ],
)
def test_what_the_controller_must_not_do_is_named(changes: dict[str, Any], says: str) -> None:
    (missed,) = build([replace(OUTAGE, **changes)], [log_of([1.0] * 26)])["missed"]
    assert missed.startswith("killed: ")
    assert says in missed


def test_the_worst_job_counts() -> None:
    slow = [1.0] * 8 + [1.1] * 9 + [1.0] * 8
    found = build([OUTAGE], [log_of([1.0] * 26), log_of(slow, "ring2"), log_of([9.0] * 26, "ring2", rank=1)])
    assert found["outages"][0]["ratio"] == pytest.approx(1.1)
    assert found["missed"] == ["killed: 5 iterations took 1.100 times as long as usual (at most 1.05)"]


def test_wrong_results_are_judged_too() -> None:
    assert build([], [log_of([1.0], rank=2, ok=False)])["missed"] == ["1 iterations had a wrong result"]
