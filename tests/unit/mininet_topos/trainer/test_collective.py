"""The data that jobs train on, and the independent check of their results."""

import numpy as np
import pytest

from mininet_topos.trainer.collective import chunk, expected_result, training_vector
from signalbox.jobs.spec import Algorithm


@pytest.mark.parametrize(
    ("other", "same"), [(("job", 2, 7), True), (("job2", 2, 7), False), (("job", 3, 7), False), (("job", 2, 8), False)]
)
def test_data_are_those_of_a_rank_of_a_job_in_an_iteration(other: tuple[str, int, int], same: bool) -> None:
    assert np.array_equal(training_vector("job", 2, 7, 1000), training_vector(*other, 1000)) is same


@pytest.mark.parametrize(
    ("algorithm", "rank", "of"), [(Algorithm.RING_ALL_REDUCE, 1, 5), (Algorithm.PIPELINE_SEND, 2, 3)]
)
def test_the_result_is_the_sum_of_all_ranks_or_in_a_pipeline_up_to_its_own(
    algorithm: Algorithm, rank: int, of: int
) -> None:
    total = sum(training_vector("job", each, 3, 100).astype(np.int64) for each in range(of))
    assert np.array_equal(expected_result(algorithm, "job", rank, 5, 3, 100), total)


def test_the_result_of_an_all_to_all_is_a_chunk_of_every_rank_in_rank_order() -> None:
    chunks = [chunk(training_vector("job", rank, 3, 101), 2, 4) for rank in range(4)]
    assert np.array_equal(expected_result(Algorithm.ALL_TO_ALL, "job", 2, 4, 3, 101), np.concatenate(chunks))
