"""Collectives with their real arithmetic, over the connections of a ``Mesh``, and the data to run them on.

In: this rank's vector of float32, and at rank 0 whether to stop. Out: the result, and whether rank 0 requested a stop.
Every rank receives the request in the same iteration, in the headers that precede the data. This module decides which
rank sends which data to which rank, and when, and computes the right results.

A rank passes on a slice as soon as it has received and added it, so no link is idle between the steps of a ring. Where
two ranks have several connections, every header has the weights that assign slices to connections.
"""

import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from mininet_topos.trainer.mesh import Bundle, Connection, Mesh
from signalbox.jobs.spec import Algorithm

SLICE_ELEMENTS = 2048
"""Elements of a slice: 8 KiB, or 14 ms on a 5 Mbit/s link, which is the resolution of the arrival times."""

VALUE_LIMIT = 1 << 13

HEADER = struct.Struct("!IH?")
DONE = b"\x06"

Scalar = TypeVar("Scalar", bound=np.generic)
Vector = np.ndarray[Any, np.dtype[np.float32]]
Integers = np.ndarray[Any, np.dtype[np.int64]]
Collective = Callable[[Mesh, int, Vector, bool], tuple[Vector, bool]]
"""Function (mesh, iteration, vector, stop) -> (result, stop), which may overwrite the vector. The argument ``stop`` is
True only on rank 0, to request a stop; the returned value is the same on all ranks. Raises ``PeerLostError`` and
``ProtocolError``."""


class ProtocolError(Exception):
    """A peer is in another iteration or step than this rank."""


def neighbours(algorithm: Algorithm, rank: int, size: int) -> tuple[set[int], set[int]]:
    """Return the ranks that ``rank`` connects to, and those that connect to it."""
    everyone = set(range(size)) - {rank}
    if algorithm in (Algorithm.RING_ALL_REDUCE, Algorithm.RING_REDUCE_SCATTER, Algorithm.RING_ALL_GATHER):
        return {(rank + 1) % size}, {(rank - 1) % size}
    if algorithm in (Algorithm.PIPELINE_SEND, Algorithm.BROADCAST):
        return {rank + 1} & everyone, {rank - 1} & everyone
    return everyone, everyone


def chunk(vector: np.ndarray[Any, np.dtype[Scalar]], index: int, count: int) -> np.ndarray[Any, np.dtype[Scalar]]:
    """Return part ``index`` of ``count`` nearly equal parts, as a view."""
    return vector[index * len(vector) // count : (index + 1) * len(vector) // count]


def ring_all_reduce(mesh: Mesh, iteration: int, vector: Vector, stop: bool) -> tuple[Vector, bool]:
    """Run reduce-scatter, then all-gather, around the ring of ranks: the result is the sum of all vectors."""
    return vector, _around(mesh, iteration, vector, stop, adding=mesh.size - 1, replacing=mesh.size - 1)


def ring_reduce_scatter(mesh: Mesh, iteration: int, vector: Vector, stop: bool) -> tuple[Vector, bool]:
    """Run reduce-scatter around the ring: the result of rank r is chunk r + 1 (mod n) of the sum of all vectors."""
    stop = _around(mesh, iteration, vector, stop, adding=mesh.size - 1, replacing=0)
    return chunk(vector, (mesh.rank + 1) % mesh.size, mesh.size), stop


def ring_all_gather(mesh: Mesh, iteration: int, vector: Vector, stop: bool) -> tuple[Vector, bool]:
    """Run all-gather around the ring: chunk p of the result is chunk p of the vector of rank p."""
    return vector, _around(mesh, iteration, vector, stop, adding=0, replacing=mesh.size - 1)


def _around(mesh: Mesh, iteration: int, vector: Vector, stop: bool, adding: int, replacing: int) -> bool:
    """Run the steps of a ring: add the received chunk in the first ``adding`` steps, copy it in the later ones.

    In step t rank r sends chunk r - t and receives chunk r - t - 1 (mod n), which it sends in the next step. No chunk
    is overwritten while parts of it are queued here: it is received before this rank sends it, or again after it has
    passed all ranks."""
    size, rank = mesh.size, mesh.rank
    successor, predecessor = mesh.to[(rank + 1) % size], mesh.from_[(rank - 1) % size]
    scratch = np.empty(SLICE_ELEMENTS, np.float32)
    steps = adding + replacing
    _send_header(mesh, successor, iteration, 0, stop)
    for piece in _slices(chunk(vector, rank, size)):
        mesh.send(successor.next_out(), piece.data)
    for step in range(steps):
        stop |= _receive_header(mesh, predecessor, iteration, step)
        pass_on = step + 1 < steps
        if pass_on:
            _send_header(mesh, successor, iteration, step + 1, stop)
        for piece in _slices(chunk(vector, (rank - step - 1) % size, size)):
            if step < adding:
                incoming = scratch[: len(piece)]
                mesh.receive(predecessor.next_in(), incoming.data, note_arrival=True)
                piece += incoming
            else:
                mesh.receive(predecessor.next_in(), piece.data, note_arrival=True)
            if pass_on:
                mesh.send(successor.next_out(), piece.data)
    mesh.flush()
    return stop


def all_to_all(mesh: Mesh, iteration: int, vector: Vector, stop: bool) -> tuple[Vector, bool]:
    """Exchange chunks: the result of rank p is chunk p of every rank's vector, in rank order."""
    size, rank = mesh.size, mesh.rank
    result = np.tile(chunk(vector, rank, size), size)
    others = [(rank + distance) % size for distance in range(1, size)]
    outgoing = {peer: chunk(vector, peer, size) for peer in others}
    incoming = {peer: chunk(result, peer, size) for peer in reversed(others)}
    return result, exchange(mesh, iteration, outgoing, incoming, stop)


def exchange(
    mesh: Mesh, iteration: int, outgoing: Mapping[int, Vector], incoming: Mapping[int, Vector], stop: bool
) -> bool:
    """Send each rank its vector of ``outgoing``, and receive each rank's vector into ``incoming``, all at once."""
    for peer, vector in outgoing.items():
        _send_header(mesh, mesh.to[peer], iteration, 0, stop)
        for piece in _slices(vector):
            mesh.send(mesh.to[peer].next_out(), piece.data)
    to_come: defaultdict[Connection, list[memoryview]] = defaultdict(list)
    for peer, vector in incoming.items():
        stop |= _receive_header(mesh, mesh.from_[peer], iteration, 0)
        for piece in _slices(vector):
            to_come[mesh.from_[peer].next_in()].append(piece.data)
    mesh.receive_each(to_come)
    mesh.flush()
    return stop


def pipeline_send(mesh: Mesh, iteration: int, vector: Vector, stop: bool) -> tuple[Vector, bool]:
    """Add this rank's vector to the sum from the previous rank, and pass the new sum on: prefix sums."""
    return vector, _along(mesh, iteration, vector, stop, adding=True)


def broadcast(mesh: Mesh, iteration: int, vector: Vector, stop: bool) -> tuple[Vector, bool]:
    """Pass on the vector from the previous rank; the result is the vector of the first rank."""
    return vector, _along(mesh, iteration, vector, stop, adding=False)


def _along(mesh: Mesh, iteration: int, vector: Vector, stop: bool, adding: bool) -> bool:
    """Pass a vector along the line of ranks.

    The last rank's confirmation returns over the same connections, so all ranks end an iteration together."""
    upstream, downstream = mesh.from_.get(mesh.rank - 1), mesh.to.get(mesh.rank + 1)
    scratch = np.empty(SLICE_ELEMENTS, np.float32)
    if upstream:
        stop |= _receive_header(mesh, upstream, iteration, 0)
    if downstream:
        _send_header(mesh, downstream, iteration, 0, stop)
    for piece in _slices(vector):
        if upstream:
            incoming = scratch[: len(piece)] if adding else piece
            mesh.receive(upstream.next_in(), incoming.data, note_arrival=True)
            if adding:
                piece += incoming
        if downstream:
            mesh.send(downstream.next_out(), piece.data)
    if downstream:
        mesh.receive(downstream.first, bytearray(len(DONE)))
    if upstream:
        mesh.send(upstream.first, DONE)
    mesh.flush()
    return stop


COLLECTIVES: Mapping[Algorithm, Collective] = {
    Algorithm.RING_ALL_REDUCE: ring_all_reduce,
    Algorithm.RING_REDUCE_SCATTER: ring_reduce_scatter,
    Algorithm.RING_ALL_GATHER: ring_all_gather,
    Algorithm.ALL_TO_ALL: all_to_all,
    Algorithm.PIPELINE_SEND: pipeline_send,
    Algorithm.BROADCAST: broadcast,
}


def _slices(vector: Vector) -> Iterator[Vector]:
    return (vector[start : start + SLICE_ELEMENTS] for start in range(0, len(vector), SLICE_ELEMENTS))


def _send_header(mesh: Mesh, bundle: Bundle, iteration: int, step: int, stop: bool) -> None:
    """Send ``HEADER``, and a weight per connection when there are several."""
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
    """Return the rank's data: ``elements`` integers in ±``VALUE_LIMIT`` as float32.

    The integers follow from the arguments alone, so every rank can compute the right result without the network. Sums
    over a thousand ranks are exact."""
    return _integers(job_id, rank, iteration, elements).astype(np.float32)


def expected_result(algorithm: Algorithm, job_id: str, rank: int, size: int, iteration: int, elements: int) -> Vector:
    """Return the right result of the collective at rank ``rank`` of ``size``, to be compared for equality."""

    def total(ranks: Iterable[int]) -> Vector:
        of_each = (_integers(job_id, each, iteration, elements) for each in ranks)
        return sum(of_each, np.zeros(elements, np.int64)).astype(np.float32)

    return right_result(algorithm, rank, size, total)


def right_result(algorithm: Algorithm, rank: int, size: int, total: Callable[[Iterable[int]], Vector]) -> Vector:
    """Return the right result of the collective at rank ``rank`` of ``size``.

    ``total`` returns the exact sum of the vectors of some ranks."""
    match algorithm:
        case Algorithm.ALL_TO_ALL:
            return np.concatenate([chunk(total([peer]), rank, size) for peer in range(size)])
        case Algorithm.RING_ALL_GATHER:
            return np.concatenate([chunk(total([peer]), peer, size) for peer in range(size)])
        case Algorithm.RING_REDUCE_SCATTER:
            return chunk(total(range(size)), (rank + 1) % size, size)
        case Algorithm.PIPELINE_SEND:
            return total(range(rank + 1))
        case Algorithm.BROADCAST:
            return total([0])
        case _:
            return total(range(size))


def _integers(job_id: str, rank: int, iteration: int, elements: int) -> Integers:
    seed = np.random.SeedSequence((zlib.crc32(job_id.encode()), rank, iteration))
    return np.random.default_rng(seed).integers(-VALUE_LIMIT, VALUE_LIMIT, elements, dtype=np.int64, endpoint=True)
