"""The jobs of the rewiring benchmark, and the criteria for its results."""

import pytest

from benchmarks.rewiring.command import OfJob, missed, targets
from benchmarks.rewiring.jobs import JOBS
from mininet_topos.rewiring.model import ways_of
from mininet_topos.rewiring.report import CHOSEN, SWITCH, Row

ADDRESSES = [f"10.0.{number}.1" for number in range(1, 13)]


def row(fabric: str, measured_s: float) -> Row:
    return Row(fabric, "", 4, measured_s, measured_s, (measured_s,))


def of_job(name: str, chosen_s: float, switch_s: float, refused: bool = False) -> OfJob:
    return OfJob(name, refused, row(CHOSEN, chosen_s), row(SWITCH, switch_s))


@pytest.mark.parametrize("name", JOBS)
def test_every_job_can_be_announced(name: str) -> None:
    for way in ways_of(JOBS[name](), ADDRESSES):
        assert len(way.spec.endpoints) == 12
        assert all(each.bytes_per_iteration > 1_000_000 for each in way.spec.collectives)


def test_bytes_are_those_of_the_models() -> None:
    (cnn,) = ways_of(JOBS["cnn"](), ADDRESSES)
    assert [each.bytes_per_iteration for each in cnn.spec.collectives] == [102_400_000]
    data, hybrid = ways_of(JOBS["recommender"](), ADDRESSES)
    assert data.spec.collectives[0].bytes_per_iteration == 134_217_728 + 655_360_000
    assert [each.bytes_per_iteration for each in hybrid.spec.collectives] == [67_108_864, 134_217_728]
    (transformer,) = ways_of(JOBS["transformer"](), ADDRESSES)
    kinds = {len(group.ranks) for group in transformer.spec.groups}
    assert kinds == {2, 3}
    assert {each.phase for each in transformer.spec.collectives} == {0, 1}


def test_all_targets_can_be_met() -> None:
    judged = targets([of_job("a", 2.0, 4.1), of_job("b", 2.0, 2.5)])
    assert missed(judged) == []
    assert len(judged) == 2 * 2 + 1 + 2


def test_what_is_missed_is_named() -> None:
    judged = targets([of_job("a", 2.0, 3.0), of_job("b", 2.0, 1.9)])
    assert missed(judged) == [
        "missed: one switch of the same cost / chosen wiring, best job is 1.50; the target is >= 2",
        "missed: b, one switch of the same cost / chosen wiring is 0.95; the target is >= 1",
    ]


def test_a_job_that_the_controller_refuses_may_be_worse() -> None:
    judged = targets([of_job("a", 2.0, 4.5), of_job("b", 2.0, 1.9, refused=True)])
    assert missed(judged) == []
    assert [target.met for target in judged if target.name.startswith("b, one switch of the same cost /")] == [None]
