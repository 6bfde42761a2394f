"""The iterations that count in the mean durations of a job."""

import pytest

from mininet_topos.lab.record import LabError
from mininet_topos.rewiring.fabrics import means
from mininet_topos.trainer.log import Iteration, RankLog


def log(rank: int, *durations: float, ok: bool = True) -> RankLog:
    ends = [sum(durations[: number + 1]) for number in range(len(durations))]
    done = tuple(
        Iteration(number, end - took, end, ok, (), took, 1)
        for number, (took, end) in enumerate(zip(durations, ends, strict=True))
    )
    return RankLog("job", rank, f"10.0.{rank + 1}.1", done, None)


def test_iterations_that_began_before_are_left_out_and_so_are_those_that_not_all_have_ended() -> None:
    logs = [log(0, 9.0, 2.0, 3.0, 4.0), log(1, 9.0, 4.0, 3.0)]
    assert means(logs, 0.0) == (9.0, 3.0, 3.0)
    assert means(logs, 5.0) == (3.0, 3.0)


def test_a_wrong_sum_is_an_error() -> None:
    with pytest.raises(LabError, match="job: a result of iteration 0 is wrong"):
        means([log(0, 1.0), log(1, 1.0, ok=False)], 0.0)
