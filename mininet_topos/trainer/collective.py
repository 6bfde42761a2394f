"""Collectives with their real arithmetic, over the connections of a ``Mesh``, and the data to run them on.

Owns which rank sends what to which, and when, and the right results. In: this rank's vector of float32. Out: the
result, and whether rank 0 asked to stop; every rank learns that in the same iteration, from the headers that travel
with the data. A slice is passed on as soon as it has arrived and been added, so no link is idle between the steps of a
ring. Where two ranks have several connections, every header has the weights that assign slices to them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from mininet_topos.trainer.mesh import Bundle, Mesh
from signalbox.jobs.spec import Algorithm

SLICE_ELEMENTS = 2048
"""8 KiB: 14 ms on a 5 Mbit/s link, which is the resolution of the arrival times."""

VALUE_LIMIT = 1 << 13

HEADER = struct.Struct("!IH?")
DONE = b"\x06"

Scalar = TypeVar("Scalar", bound=np.generic)
Vector = np.ndarray[Any, np.dtype[np.float32]]
Integers = np.ndarray[Any, np.dtype[np.int64]]
Collective = Callable[[Mesh, int, Vector, bool], tuple[Vector, bool]]
"""(mesh, iteration, vector, stop) -> (result, stop). The vector may be overwritten. ``stop`` in: whether rank 0 wants
to stop, False elsewhere; out: what all ranks agree on. Raises ``PeerLostError`` and ``ProtocolError``."""


class ProtocolError(Exception):
    """A peer is in another iteration or step than this rank."""


def neighbours(algorithm: Algorithm, rank: int, size: int) -> tuple[set[int], set[int]]:
    """The ranks that ``rank`` connects to, and those that connect to it."""
    everyone = set(range(size)) - {rank}
    if algorithm is Algorithm.RING_ALL_REDUCE:
        return {(rank + 1) % size}, {(rank - 1) % size}
    if algorithm is Algorithm.PIPELINE_SEND:
        return {rank + 1} & everyone, {rank - 1} & everyone
    return everyone, everyone


def chunk(vector: np.ndarray[Any, np.dtype[Scalar]], index: int, count: int) -> np.ndarray[Any, np.dtype[Scalar]]:
    """Part ``index`` of ``count`` nearly equal parts, as a view."""
    return vector[index * len(vector) // count : (index + 1) * len(vector) // count]


def ring_all_reduce(mesh: Mesh, iteration: int, vector: Vector, stop: bool) -> tuple[Vector, bool]:
    """Reduce-scatter, then all-gather, around the ring of ranks: the result is the sum of all vectors.

    In step t rank r sends chunk r - t and receives chunk r - t - 1 (mod n), which it sends in the next step. The first
    n - 1 steps add what arrives, the last n - 1 replace by it. A chunk that is replaced has passed all ranks, so no
    part of it is still queued here.
    """
    size, rank = mesh.size, mesh.rank
    successor, predecessor = mesh.to[(rank + 1) % size], mesh.from_[(rank - 1) % size]
    scratch = np.empty(SLICE_ELEMENTS, np.float32)
    steps = 2 * (size - 1)
    _send_header(mesh, successor, iteration, 0, stop)
    for piece in _slices(chunk(vector, rank, size)):
        mesh.send(successor.next_out(), piece.data)
    for step in range(steps):
        stop |= _receive_header(mesh, predecessor, iteration, step)
        pass_on = step + 1 < steps
        if pass_on:
            _send_header(mesh, successor, iteration, step + 1, stop)
        for piece in _slices(chunk(vector, (rank - step - 1) % size, size)):
            if step < size - 1:
                incoming = scratch[: len(piece)]
                mesh.receive(predecessor.next_in(), incoming.data, note_arrival=True)
                piece += incoming
            else:
                mesh.receive(predecessor.next_in(), piece.data, note_arrival=True)
            if pass_on:
                mesh.send(successor.next_out(), piece.data)
    mesh.flush()
    return vector, stop


def all_to_all(mesh: Mesh, iteration: int, vector: Vector, stop: bool) -> tuple[Vector, bool]:
    """The result of rank p is chunk p of every rank's vector, in rank order.

    In round k every rank sends to the k-th rank after it and receives from the k-th before it.
    """
    size, rank = mesh.size, mesh.rank
    own = chunk(vector, rank, size)
    result = np.tile(own, size)
    for distance in range(1, size):
        destination, source = (rank + distance) % size, (rank - distance) % size
        _send_header(mesh, mesh.to[destination], iteration, distance, stop)
        for piece in _slices(chunk(vector, destination, size)):
            mesh.send(mesh.to[destination].next_out(), piece.data)
        stop |= _receive_header(mesh, mesh.from_[source], iteration, distance)
        for piece in _slices(chunk(result, source, size)):
            mesh.receive(mesh.from_[source].next_in(), piece.data, note_arrival=True)
    mesh.flush()
    return result, stop


def pipeline_send(mesh: Mesh, iteration: int, vector: Vector, stop: bool) -> tuple[Vector, bool]:
    """Every rank adds its vector to what comes from the rank before it and passes that on: prefix sums.

    The last rank's confirmation comes back over the same connections, so an iteration ends on all ranks together.
    """
    upstream, downstream = mesh.from_.get(mesh.rank - 1), mesh.to.get(mesh.rank + 1)
    scratch = np.empty(SLICE_ELEMENTS, np.float32)
    if upstream:
        stop |= _receive_header(mesh, upstream, iteration, 0)
    if downstream:
        _send_header(mesh, downstream, iteration, 0, stop)
    for piece in _slices(vector):
        if upstream:
            incoming = scratch[: len(piece)]
            mesh.receive(upstream.next_in(), incoming.data, note_arrival=True)
            piece += incoming
        if downstream:
            mesh.send(downstream.next_out(), piece.data)
    if downstream:
        mesh.receive(downstream.first, bytearray(len(DONE)))
    if upstream:
        mesh.send(upstream.first, DONE)
    mesh.flush()
    return vector, stop


COLLECTIVES: Mapping[Algorithm, Collective] = {
    Algorithm.RING_ALL_REDUCE: ring_all_reduce,
    Algorithm.ALL_TO_ALL: all_to_all,
    Algorithm.PIPELINE_SEND: pipeline_send,
}


def _slices(vector: Vector) -> Iterator[Vector]:
    return (vector[start : start + SLICE_ELEMENTS] for start in range(0, len(vector), SLICE_ELEMENTS))


def _send_header(mesh: Mesh, bundle: Bundle, iteration: int, step: int, stop: bool) -> None:
    """``HEADER``, and a weight per connection when there are several."""
    weights = bundle.outgoing.weights
    packed = struct.pack(f"!{len(weights)}H", *weights) if len(weights) > 1 else b""
    mesh.send(bundle.first, HEADER.pack(iteration, step, stop) + packed)


def _receive_header(mesh: Mesh, bundle: Bundle, iteration: int, step: int) -> bool:
    count = len(bundle.connections)
    packed = bytearray(HEADER.size + (2 * count if count > 1 else 0))
    mesh.receive(bundle.first, packed)
    at_iteration, at_step, stop = HEADER.unpack_from(packed)
    if (at_iteration, at_step) != (iteration, step):
        raise ProtocolError(
            f"{bundle.peer} is at iteration {at_iteration}, step {at_step}; this rank at {iteration}, step {step}"
        )
    if count > 1:
        bundle.incoming.set(struct.unpack_from(f"!{count}H", packed, HEADER.size))
    return bool(stop)


def training_vector(job_id: str, rank: int, iteration: int, elements: int) -> Vector:
    """The rank's data: ``elements`` integers in ±``VALUE_LIMIT`` as float32. They follow from the other arguments
    alone, so every rank can compute the right result without the network; sums of a thousand ranks are exact."""
    return _integers(job_id, rank, iteration, elements).astype(np.float32)


def expected_result(algorithm: Algorithm, job_id: str, rank: int, size: int, iteration: int, elements: int) -> Vector:
    """The right result of the collective at rank ``rank`` of ``size``, to be compared for equality."""

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
