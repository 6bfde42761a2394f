"""A rank's data, results and last iteration, with a library that computes in memory."""

import threading
from pathlib import Path

import numpy as np
import pytest

from mininet_topos.joining.rank import RankSpec, Vector, data, expected, go, is_right, log_path, part, run, stop
from mininet_topos.trainer.log import Iteration, read_rank_log

SIZE, ELEMENTS, ITERATION = 4, 40, 3


def vectors() -> list[Vector]:
    return [data(rank, ITERATION, ELEMENTS) for rank in range(SIZE)]


@pytest.mark.parametrize("rank", range(SIZE))
def test_the_right_results_are_those_of_the_definitions(rank: int) -> None:
    everyone = vectors()
    total = np.sum(everyone, axis=0)
    assert np.array_equal(right("all_reduce", rank), total)
    assert np.array_equal(right("reduce_scatter", rank), part(total, rank, SIZE))
    assert np.array_equal(right("broadcast", rank), everyone[0])
    assert np.array_equal(right("all_gather", rank), np.concatenate([part(v, p, SIZE) for p, v in enumerate(everyone)]))
    assert np.array_equal(right("all_to_all", rank), np.concatenate([part(v, rank, SIZE) for v in everyone]))


def right(collective: str, rank: int) -> Vector:
    result = expected(collective, rank, SIZE, ITERATION, ELEMENTS)
    assert result is not None
    return result


def test_a_result_that_one_rank_is_missing_from_is_wrong() -> None:
    assert not is_right(np.sum(vectors()[1:], axis=0), right("all_reduce", 0))
    assert not is_right(None, right("all_reduce", 0))


class Together:
    """All-reduce library of one rank; the ranks are threads of this process."""

    def __init__(self, rank: int, meeting: threading.Barrier, vectors: dict[int, Vector]) -> None:
        self.rank, self.size = rank, meeting.parties
        self._meeting, self._vectors = meeting, vectors

    def run(self, collective: str, vector: Vector) -> Vector:
        assert collective == "all_reduce"
        self._vectors[self.rank] = vector.copy()
        self._meeting.wait()
        total: Vector = np.sum([self._vectors[rank] for rank in range(self.size)], axis=0)
        self._meeting.wait()
        return total


def test_all_ranks_end_after_the_same_iteration(tmp_path: Path) -> None:
    meeting, together = threading.Barrier(SIZE), dict[int, Vector]()
    asked = threading.Event()

    def report(done: Iteration) -> None:
        if done.index == 5:
            asked.set()

    def run_rank(rank: int) -> None:
        spec = RankSpec("job", rank, ("a",) * SIZE, "all_reduce", ELEMENTS, tmp_path, tmp_path / "control")
        assert run(spec, Together(rank, meeting, together), report)

    go(tmp_path / "control")
    threads = [threading.Thread(target=run_rank, args=(rank,)) for rank in range(SIZE)]
    for thread in threads:
        thread.start()
    asked.wait()
    stop(tmp_path / "control")
    for thread in threads:
        thread.join()
    logs = [read_rank_log(log_path(tmp_path, "job", rank)) for rank in range(SIZE)]
    assert len({len(log.iterations) for log in logs}) == 1
    assert all(log.ended and len(log.iterations) > 5 for log in logs)
    assert all(i.ok for log in logs for i in log.iterations)
