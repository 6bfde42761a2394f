"""Judgements of job announcements by generated counters of some minutes.

``python -m benchmarks judgement`` simulates thousands of hours."""

import pytest

from benchmarks.judgement.command import Right, Wrong, missed, watch, ways
from benchmarks.judgement.windows import generated, kinds
from controller.demand.job_demand import DemandSource, Finding

HOURS = 0.05
FASTER = (("ring", 9033), ("halving-doubling", 240693))
"""Kinds and seeds of jobs whose iterations become faster while reports are missing.

Iterations of the first job shorten from 3.4 s to 1.7 s while 60 s pass without reports. Iterations of the second job
shorten from 22 s to 16 s, and then to 12 s while 50 s pass without reports."""
PAUSES = 53
"""Seed of a job with iterations of 0.1 s that pauses while its last report is late."""
LONG = 13
"""Seed of a job with iterations of 14 s.

The windows of its counters reach back to the time when the job sent its parameters. While the job computes, it sends
only few bytes, on the paths of the parameters."""

PARAMETERS = (("ring", 40301), ("ring", 40324), ("reduce-scatter with all-gather", 841141))
"""Kinds and seeds of jobs that first send the model's parameters, in the other direction than their iterations.

The bytes of the parameters appear in three polls of the counters, or the report of the first iteration arrives before
all of these bytes are counted."""

BEHIND = (("tree", 600019), ("all-to-all", 800014), ("pipeline", 900023), ("fsdp", 1200023))
"""Kinds and seeds of jobs in which ranks are at times up to an iteration behind the rank that reports."""


@pytest.mark.parametrize("name", kinds())
def test_a_right_announcement_is_confirmed_and_not_contradicted(name: str) -> None:
    one = kinds()[name]
    watched = watch(generated(one, one.spec(), 3, 2 * HOURS))
    assert watched.contradicted_at == ()
    assert watched.last.source is DemandSource.CONFIRMED


HARD = [("ddp", PAUSES), ("ddp", LONG), PARAMETERS[0], FASTER[0], BEHIND[0]]
OTHERS = [pytest.param(*each, marks=pytest.mark.long) for each in (*PARAMETERS[1:], *FASTER[1:], *BEHIND[1:])]


@pytest.mark.parametrize(("name", "seed"), [*HARD, *OTHERS])
def test_what_is_hard_to_judge_is_not_contradicted(name: str, seed: int) -> None:
    assert watch(generated(kinds()[name], kinds()[name].spec(), seed, 0.25)).contradicted_at == ()


@pytest.mark.parametrize("name", ["ring", "all-to-all", pytest.param("ddp", marks=pytest.mark.long)])
def test_wrong_announcements_are_contradicted_and_told_apart(name: str) -> None:
    expected = {"reversed": Finding.OTHER_TRAFFIC, "half": Finding.OTHER_AMOUNTS, "double": Finding.OTHER_AMOUNTS}
    for way, sends, spec, matrix in ways(kinds()[name], seed=22):
        watched = watch(generated(sends, spec, 22, HOURS, matrix))
        assert watched.first_counters_at is not None
        assert watched.contradicted_at[0][0] - watched.first_counters_at <= 20, way
        difference = watched.last.difference
        assert difference is not None
        assert difference.contradicts
        assert expected.get(way, difference.findings[0]) in difference.findings, way
        assert difference.backwards == (way == "reversed")
        if way in ("half", "double") and name != "all-to-all":
            assert difference.factor == pytest.approx(2.0 if way == "half" else 0.5, rel=0.1)


def test_targets_that_are_missed_are_said() -> None:
    good = Right("ring", 1000.0, 4000, 1), Wrong("half", "ring", 1.0, 2.0, 8.0)
    assert missed([good[0]], [good[1]]) == []
    said = missed([Right("ring", 500.0, 2000, 1)], [Wrong("reversed", "ring", 1.0, 2.0, float("inf"))])
    assert said == ["ring: 2.0 false alarms per 1,000 hours", "reversed: 0% are found within 6 s or 3 iterations"]
