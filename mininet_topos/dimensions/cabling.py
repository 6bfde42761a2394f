"""How the NPUs of a network of several dimensions are cabled, and what is emulated of its jobs. Pure.

In: a ``Shape``, and jobs as designed for it. Out: segments (a cable, or a switch with the cables to it), each an IPv4
subnet of its own, and all-reduces by the dimensions and ranks that take part.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from mininet_topos.dimensions.collective import Channel, Place
from offline.design.jobs import DesignedJob, Step
from offline.design.loads import ALL_REDUCES
from offline.design.shape import Kind, Shape
from signalbox.errors import InvalidInput
from signalbox.jobs.spec import Collective, JobSpec


class End(NamedTuple):
    """Where an NPU is connected. ``offset``: of the channel through it."""

    npu: int
    offset: int
    interface: str
    address: str


class Segment(NamedTuple):
    """A cable has two ends; a switch has them in the order of their coordinates."""

    number: int
    dimension: int
    switched: bool
    ends: tuple[End, ...]


def segments(shape: Shape) -> list[Segment]:
    """Of a ring of two NPUs there are two cables."""
    found: list[Segment] = []
    for d, npus in _lines(shape):
        for pair in _connected(shape.dimensions[d].kind, npus):
            number = len(found)
            subnet = f"10.{64 + (number >> 8)}.{number & 255}"
            ends = (
                End(npu, offset, f"d{d}{'b' if offset < 0 else 'f'}{abs(offset)}", f"{subnet}.{at}")
                for at, (npu, offset) in enumerate(pair, 1)
            )
            found.append(Segment(number, d, shape.dimensions[d].kind is Kind.SWITCH, tuple(ends)))
    return found


def channels(cabling: Iterable[Segment]) -> dict[int, dict[Channel, End]]:
    """By NPU, the end that each of its channels leads to."""
    found: defaultdict[int, dict[Channel, End]] = defaultdict(dict)
    for segment in cabling:
        for end, other in zip(segment.ends, (*segment.ends[1:], segment.ends[0]), strict=True):
            found[end.npu][Channel(segment.dimension, end.offset)] = other
    return found


def places(shape: Shape) -> list[tuple[Place, ...]]:
    """By NPU."""
    coordinates = zip(*(each.tolist() for each in shape.coordinates(np.arange(shape.npus))), strict=True)
    return [
        tuple(
            Place(dimension.kind.value, dimension.size, at) for dimension, at in zip(shape.dimensions, of, strict=True)
        )
        for of in coordinates
    ]


def _lines(shape: Shape) -> Iterator[tuple[int, list[int]]]:
    """Each dimension with all rows of NPUs in it, by coordinate."""
    everyone = np.arange(shape.npus).reshape(shape.sizes[::-1])
    for d, size in enumerate(shape.sizes):
        for row in np.moveaxis(everyone, -1 - d, -1).reshape(-1, size).tolist():
            yield d, row


def _connected(kind: Kind, npus: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """(NPU, offset) of all ends of each segment."""
    size = len(npus)
    if kind is Kind.SWITCH:
        yield [(npu, 1) for npu in npus]
    elif kind is Kind.RING:
        for at in range(size):
            yield [(npus[at], 1), (npus[(at + 1) % size], -1)]
    else:
        for a, b in combinations(range(size), 2):
            yield [(npus[a], b - a), (npus[b], size - (b - a))]


# ---- jobs


class LabStep(NamedTuple):
    """An all-reduce of ``size`` bytes in ``dimensions`` by each of the groups, or none, that overlaps with ``step``'s
    computing. ``weight``: of its time."""

    job_id: str
    weight: float
    step: Step
    dimensions: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    size: float = 0.0


def lab_steps(jobs: Iterable[DesignedJob], shape: Shape) -> list[LabStep]:
    """Of all jobs in turn. Raises ``InvalidInput`` for what is not emulated."""
    return [_lab_step(job, step, shape) for job in jobs for step in job.steps]


def _lab_step(job: DesignedJob, step: Step, shape: Shape) -> LabStep:
    if job.spec is None:
        raise InvalidInput.of(job.job_id, "has a model: only collectives are emulated")
    found = [each for each in job.spec.collectives if each.phase == step.phase]
    if any(transfer.phase == step.phase for transfer in job.spec.transfers):
        raise InvalidInput.of(job.job_id, f"phase {step.phase} has transfers: only collectives are emulated")
    if not found:
        return LabStep(job.job_id, job.weight, step)
    if len(found) > 1 or found[0].algorithm not in ALL_REDUCES:
        raise InvalidInput.of(job.job_id, f"phase {step.phase} must be one all-reduce to be emulated")
    groups = _groups(job.spec, found[0])
    spanned = {_spanned(ranks, shape) for ranks in groups}
    if len(spanned) > 1 or None in spanned:
        message = f"groups of phase {step.phase} must fill the same dimensions to be emulated"
        raise InvalidInput.of(job.job_id, message)
    (dimensions,) = spanned
    assert dimensions is not None
    return LabStep(job.job_id, job.weight, step, dimensions, groups, found[0].bytes_per_iteration)


def _groups(spec: JobSpec, collective: Collective) -> tuple[tuple[int, ...], ...]:
    ranks: Mapping[str, tuple[int, ...]] = {group.name: tuple(group.ranks) for group in spec.groups}
    return tuple(ranks[name] for name in collective.groups)


def _spanned(ranks: Sequence[int], shape: Shape) -> tuple[int, ...] | None:
    """The dimensions in which the ranks differ; None where these are not filled by them."""
    spans = [len(np.unique(at)) for at in shape.coordinates(np.array(ranks))]
    if math.prod(spans) != len(ranks) or any(
        span not in (1, size) for span, size in zip(spans, shape.sizes, strict=True)
    ):
        return None
    return tuple(d for d, span in enumerate(spans) if span > 1)
