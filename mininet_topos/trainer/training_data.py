"""Random data to train on, and what a collective must make of it.

Owns both sides of the check: each rank's vector follows from (job, rank, iteration) alone, so every rank can compute
the right result by itself, in integers and without a look at the network. The values are integers small enough for
float32 sums of a thousand ranks to be exact, so results are compared for equality.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from controller.jobs.spec import Algorithm
from mininet_topos.trainer.collective import Vector, chunk

VALUE_LIMIT = 1 << 13

Integers = np.ndarray[Any, np.dtype[np.int64]]


def vector(job_id: str, rank: int, iteration: int, elements: int) -> Vector:
    """The rank's data: ``elements`` integers in ±``VALUE_LIMIT`` as float32."""
    return _integers(job_id, rank, iteration, elements).astype(np.float32)


def expected(algorithm: Algorithm, job_id: str, rank: int, size: int, iteration: int, elements: int) -> Vector:
    """What the collective owes rank ``rank`` of ``size``, to be compared for equality."""

    def of_rank(peer: int) -> Integers:
        return _integers(job_id, peer, iteration, elements)

    if algorithm is Algorithm.ALL_TO_ALL:
        return np.concatenate([chunk(of_rank(peer), rank, size) for peer in range(size)]).astype(np.float32)
    total = of_rank(0)
    for peer in range(1, rank + 1 if algorithm is Algorithm.PIPELINE_SEND else size):
        total += of_rank(peer)
    return total.astype(np.float32)


def _integers(job_id: str, rank: int, iteration: int, elements: int) -> Integers:
    seed = np.random.SeedSequence((zlib.crc32(job_id.encode()), rank, iteration))
    return np.random.default_rng(seed).integers(-VALUE_LIMIT, VALUE_LIMIT, elements, dtype=np.int64, endpoint=True)
