"""The data that jobs train on, and the independent check of their results."""

from __future__ import annotations

import numpy as np
import pytest

from mininet_topos.trainer.collective import COLLECTIVES, chunk, expected_result, neighbours, training_vector
from signalbox.jobs.spec import Algorithm


def test_the_data_of_a_rank_are_the_same_wherever_they_are_computed() -> None:
    assert np.array_equal(training_vector("job", 2, 7, 1000), training_vector("job", 2, 7, 1000))


@pytest.mark.parametrize("other", [("job2", 2, 7), ("job", 3, 7), ("job", 2, 8)])
def test_jobs_ranks_and_iterations_have_different_data(other: tuple[str, int, int]) -> None:
    assert not np.array_equal(training_vector("job", 2, 7, 1000), training_vector(*other, 1000))


def test_the_result_of_an_all_reduce_is_the_sum() -> None:
    total = sum(training_vector("job", rank, 3, 100).astype(np.int64) for rank in range(5))
    assert np.array_equal(expected_result(Algorithm.RING_ALL_REDUCE, "job", 1, 5, 3, 100), total)


def test_the_result_of_a_pipeline_stage_is_the_sum_up_to_it() -> None:
    total = sum(training_vector("job", rank, 3, 100).astype(np.int64) for rank in range(3))
    assert np.array_equal(expected_result(Algorithm.PIPELINE_SEND, "job", 2, 5, 3, 100), total)


def test_the_result_of_an_all_to_all_is_a_chunk_of_every_rank_in_rank_order() -> None:
    chunks = [chunk(training_vector("job", rank, 3, 101), 2, 4) for rank in range(4)]
    assert np.array_equal(expected_result(Algorithm.ALL_TO_ALL, "job", 2, 4, 3, 101), np.concatenate(chunks))


@pytest.mark.parametrize("elements", [0, 1, 3, 4, 103])
def test_chunks_cover_a_vector_that_does_not_divide(elements: int) -> None:
    vector = np.arange(elements, dtype=np.float32)
    assert np.array_equal(np.concatenate([chunk(vector, index, 4) for index in range(4)]), vector)


@pytest.mark.parametrize("algorithm", COLLECTIVES)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_rank_accepts_exactly_the_ranks_that_connect_to_it(algorithm: Algorithm, size: int) -> None:
    opened = {(rank, peer) for rank in range(size) for peer in neighbours(algorithm, rank, size)[0]}
    accepted = {(peer, rank) for rank in range(size) for peer in neighbours(algorithm, rank, size)[1]}
    assert opened == accepted
