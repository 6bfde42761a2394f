"""Computing times of the trainer: steady, with jitter, with stragglers, and drifting."""

import random
import time
from collections.abc import Callable
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest

from mininet_topos.trainer.collective import COLLECTIVES, training_vector
from mininet_topos.trainer.training import RankSpec, StopRequest, train, unreported
from offline.scenarios.variation import STEADY, Variation
from signalbox.jobs.reports import Step
from signalbox.jobs.spec import Algorithm

COMPUTE_S, COUNT = 0.5, 200


class NoNetwork:
    """Mesh of a rank without neighbours."""

    def __init__(self) -> None:
        self.to: dict[int, Any] = {}

    def take_arrivals(self) -> list[float]:
        return []


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr("mininet_topos.trainer.training.time.sleep", found.append)
    return found


def run(spec: RankSpec, monkeypatch: pytest.MonkeyPatch, step: Callable[[], Step] = unreported) -> None:
    def collective(_mesh: Any, iteration: int, _vector: Any, last: bool) -> tuple[Any, bool]:
        total = sum(training_vector(spec.job_id, rank, iteration, spec.elements) for rank in range(spec.size))
        return np.asarray(total), last or iteration + 1 == spec.iterations

    monkeypatch.setitem(COLLECTIVES, Algorithm.RING_ALL_REDUCE, collective)
    done = list(train(spec, NoNetwork(), StopRequest(), None, step))  # type: ignore[arg-type]
    assert [each.ok for each in done] == [True] * COUNT


def times(slept: list[float], monkeypatch: pytest.MonkeyPatch, variation: Variation, **more: Any) -> list[float]:
    slept.clear()
    peers = ("10.0.1.1", "10.0.2.1")
    fields = {"rank": 0, "seed": 3, "job_id": "job", **more}
    spec = RankSpec(peers=peers, elements=8, compute_s=COMPUTE_S, iterations=COUNT, variation=variation, **fields)
    run(spec, monkeypatch)
    assert slept[0] == 0  # the training begins at once
    return slept[1:]


def test_steady_times_are_those_of_the_option(slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    assert times(slept, monkeypatch, STEADY) == [COMPUTE_S] * COUNT


def test_jitter_is_the_same_on_all_ranks_and_differs_between_jobs_and_seeds(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    jitter = Variation(jitter=0.05)
    first = times(slept, monkeypatch, jitter)
    assert times(slept, monkeypatch, jitter, rank=1) == first
    others = [times(slept, monkeypatch, jitter, **other) for other in ({"seed": 4}, {"job_id": "other"})]
    assert first not in others
    assert others[0] != others[1]
    assert fmean(first) == pytest.approx(COMPUTE_S, rel=0.02)
    assert pstdev(first) == pytest.approx(0.05 * COMPUTE_S, rel=0.2)


def test_stragglers_and_drift() -> None:
    chance = random.Random(1)
    slow = [Variation(straggler=0.1, slow=3.0).factor(index, chance) for index in range(COUNT)]
    assert set(slow) == {1.0, 3.0}
    assert slow.count(3.0) == pytest.approx(0.1 * COUNT, rel=0.5)
    assert Variation(drift=0.001).factor(500, chance) == pytest.approx(1.5)


def test_with_a_pause_iterations_begin_at_multiples_of_it(slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    begin_at = time.monotonic()
    found = times(slept, monkeypatch, STEADY, begin_at=begin_at, every_s=1000.0)
    pauses = [each for each in found if each != COMPUTE_S]
    assert len(pauses) == COUNT - 1
    assert all(900 < pause < 1000 for pause in pauses)


def test_the_context_of_an_iteration_measures_its_computing_and_its_collective(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[tuple[float | None, ...]] = []
    spec = RankSpec("job", 0, ("10.0.1.1", "10.0.2.1"), elements=8, compute_s=COMPUTE_S, iterations=COUNT)
    run(spec, monkeypatch, lambda: Step(lambda *times: reported.append(times)))
    assert len(reported) == COUNT
    assert slept[1:] == [COMPUTE_S] * COUNT
    assert all(took_s and communicated_s and 0 < communicated_s <= took_s for took_s, communicated_s, *_ in reported)
