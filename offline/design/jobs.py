"""Jobs of a design, read from files of job specs, with the bytes that each phase sends in each dimension.

The files have the fields of a job file, whose addresses may be left out, and the fields of ``JobInDesign``
(docs/design.md#jobs). Rank r is NPU r, unless a placement maps the ranks to other NPUs. The results are
``DesignedJob``s; ``InvalidInput`` names the place of each error in the files.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from offline.design.loads import Loads, collective_bytes
from offline.design.placing import MEGATRON, Part, Placed, placements
from offline.design.question import Question, Term, term_s
from offline.design.shape import LEAST_GBPS, Ints, Shape
from signalbox.errors import FieldProblem, InvalidInput, validated
from signalbox.file_forms import JobInFile, addresses_in
from signalbox.files import called
from signalbox.jobs.formulas import formula
from signalbox.jobs.spec import MAX_ENDPOINTS, Algorithm, Collective, JobSpec, Library
from signalbox.models import Parallelism, misfits
from signalbox.spec_files import PlaceOf, data_in, placed

GIGABITS = 8e-9
"""Gigabits of one byte."""

_AT_ONCE = 1 << 18
_SEND = np.dtype((float, 3))
"""Record of one transfer: sender, receiver and bytes."""


class JobInDesign(JobInFile):
    """Fields of a job in a design: the fields of a job file, and one that only designs read."""

    placement: tuple[Part, ...] | None = None
    """Order in which the parts of a model's parallelism fill the dimensions, beginning with the first dimension."""


class Step(NamedTuple):
    """Part of an iteration. Its time is the maximum of ``floor_s`` and, over all dimensions, gigabits / bandwidth."""

    phase: int | None
    """Phase of the job, or None for computing that overlaps with no communication."""
    gigabits: tuple[float, ...]
    floor_s: float


@dataclass(frozen=True, slots=True)
class DesignedJob:
    """Job with the bytes of each step by dimension. Its steps run one after the other."""

    job_id: str
    weight: float
    steps: tuple[Step, ...]
    placed: Placed | None = None
    """Placement of the model; None for a job without a model."""
    spec: JobSpec | None = None
    """Spec of a job without a model; None for a job with a model."""

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(Term(self.weight, step.gigabits, step.floor_s) for step in self.steps)

    def step_times_s(self, gbps: Sequence[float]) -> tuple[float, ...]:
        return tuple(term_s(term, gbps) for term in self.terms)


def best_first(ways: Iterable[DesignedJob], gbps: Sequence[float]) -> list[DesignedJob]:
    """Return the placements of a job, fastest first; ties are broken by the longest step, then the next longest."""

    def key(way: DesignedJob) -> tuple[float, ...]:
        times = way.step_times_s(gbps)
        return tuple(_rounded(time_s) for time_s in (math.fsum(times), *sorted(times, reverse=True)))

    return sorted(ways, key=key)


def _rounded(time_s: float) -> float:
    return float(f"{time_s:.9g}")


def question_of(shape: Shape, jobs: Iterable[DesignedJob]) -> Question:
    """Return the question for these jobs. Each dimension in which a job sends gets at least ``LEAST_GBPS``."""
    asked = Question(shape.names, tuple(term for job in jobs for term in job.terms), shape.limits)
    floors = (LEAST_GBPS if loaded else 0.0 for loaded in asked.loaded)
    least = tuple(map(max, asked.limits.least, floors))
    return replace(asked, limits=replace(asked.limits, least=least))


def designed_jobs(files: Iterable[Path], shape: Shape, every_placement: bool = False) -> list[list[DesignedJob]]:
    """Return one list for each job in the files.

    The list has the job in its placement. With ``every_placement``, the list has the job once for each possible
    placement of its model. Raises ``InvalidInput``."""
    found: list[list[DesignedJob]] = []
    problems: list[FieldProblem] = []
    for path in files:
        of_file = _of_file(path, shape, every_placement, problems)
        if not of_file and not problems:
            raise InvalidInput.of(called(path), "there is no job in this file")
        found += of_file
    InvalidInput.refuse(problems)
    return found


def _of_file(path: Path, shape: Shape, every: bool, problems: list[FieldProblem]) -> list[list[DesignedJob]]:
    found = []
    for data, place_of in data_in(path, called(path)):
        try:
            found.append(_job(data, place_of, shape, every))
        except InvalidInput as error:
            problems += error.problems
    return found


def _job(data: Any, place_of: PlaceOf, shape: Shape, every: bool) -> list[DesignedJob]:
    with placed(place_of):
        job = validated(JobInDesign, data)
        InvalidInput.refuse(_misplaced(job, data))
        ranks = _rank_count(job, shape)
        if job.model is None:
            spec = _spec(job, ranks)
            return [_designed(job, _bytes_by_phase(spec, shape), shape, spec=spec)]
        parallelism = job.parallelism or Parallelism()
        if parallelism.data is None:
            divided = parallelism.tensor * parallelism.pipeline
            InvalidInput.refuse(misfits(job.model, parallelism, max(1, ranks // divided), ranks))
            parallelism = parallelism.model_copy(update={"data": ranks // divided})
        order = MEGATRON if job.placement is None else job.placement
        ways = placements(job.model, parallelism, shape, None if every else order)
        return [_designed(job, way.phases, shape, way) for way in ways]


def _misplaced(job: JobInDesign, data: Any) -> Iterator[FieldProblem]:
    if job.parallelizations:
        yield FieldProblem(
            "parallelizations", "are only for signalbox design wiring: give the fields of one parallelization here"
        )
        return
    if job.model is None:
        for name in ("parallelism", "placement"):
            if name in data:
                yield FieldProblem(name, "needs a model; without a model rank r is NPU r")
        if job.observed:
            yield FieldProblem("", "the job has no traffic: give a model, collectives or transfers")
        return
    for name in ("groups", "collectives", "transfers"):
        if name in data:
            yield FieldProblem(name, "cannot be combined with a model, which defines the traffic: omit one of them")


def _rank_count(job: JobInDesign, shape: Shape) -> int:
    """Return the number of the job's addresses, or of all NPUs if the job has no addresses."""
    if job.hosts:
        ranks = len(addresses_in("hosts", job.hosts)) * job.ranks_per_host
    else:
        ranks = len(job.endpoints) or shape.npus
    if ranks > shape.npus:
        message = f"must have at most {shape.npus:,} ranks, the number of NPUs (given: {ranks:,})"
        raise InvalidInput.of("hosts" if job.hosts else "endpoints", message)
    return ranks


def _spec(job: JobInDesign, ranks: int) -> JobSpec:
    """Return the spec of a job without a model, with invented addresses; a design needs only the numbers of NPUs.

    Raises ``InvalidInput``."""
    if ranks > MAX_ENDPOINTS:
        message = (
            f"the job has no addresses, so it has {ranks:,} ranks, one per NPU; at most {MAX_ENDPOINTS:,} are allowed"
        )
        raise InvalidInput.of("", f"{message} without a model")
    return JobSpec.parse(
        {
            "job_id": job.job_id,
            "endpoints": tuple(f"10.0.{rank >> 8}.{rank & 255}" for rank in range(ranks)),
            "groups": job.groups,
            "collectives": job.collectives,
            "transfers": job.transfers,
        }
    )


def _bytes_by_phase(spec: JobSpec, shape: Shape) -> dict[int, tuple[float, ...]]:
    loads = defaultdict[int, Loads](lambda: Loads(shape))
    members = {group.name: np.array(group.ranks) for group in spec.groups}
    for collective in spec.collectives:
        for name in collective.groups:
            _add(loads[collective.phase], collective, members[name], shape)
    for phase in {transfer.phase for transfer in spec.transfers}:
        ends = [(each.src, each.dst, each.bytes_per_iteration) for each in spec.transfers if each.phase == phase]
        src, dst, size = zip(*ends, strict=True)
        loads[phase].add_transfers(np.array(src), np.array(dst), np.array(size, float))
    return {phase: of_phase.bytes_per_dimension() for phase, of_phase in sorted(loads.items())}


def _add(loads: Loads, collective: Collective, ranks: Ints, shape: Shape) -> None:
    """Add a collective of one group to the loads of its phase.

    The ranks of a group usually form a block of NPUs: some places in each dimension, with an NPU at every combination
    of them. A collective of a block runs dimension by dimension. A group of another form runs the algorithm over all of
    its ranks at once, as on a network of one dimension. A pipeline always runs over all of its ranks at once, because
    the order of its ranks matters."""
    places = [np.unique(at) for at in shape.coordinates(ranks)]
    spans = [len(at) for at in places]
    algorithm, size = collective.algorithm, collective.bytes_per_iteration
    if math.prod(spans) == len(ranks) and algorithm is not Algorithm.PIPELINE_SEND:
        loads.add_collective(ranks, collective_bytes(algorithm, size, spans, shape.dimensions), places)
        return
    known = formula(Library.GENERIC, algorithm, len(ranks), size)
    for step in known.steps(len(ranks), size) if known else ():
        left = iter(step)
        while len(sends := np.fromiter(islice(left, _AT_ONCE), _SEND)):  # an all-to-all has millions of transfers
            src, dst = sends[:, :2].astype(int).T
            loads.add_transfers(ranks[src], ranks[dst], sends[:, 2].astype(float))


def _designed(
    job: JobInDesign,
    phases: Mapping[int, tuple[float, ...]],
    shape: Shape,
    way: Placed | None = None,
    spec: JobSpec | None = None,
) -> DesignedJob:
    alone = math.fsum(each.seconds for each in job.compute if each.phase is None)
    nothing = (0.0,) * len(shape.sizes)
    steps = [Step(None, nothing, alone)] if alone else []
    for phase in sorted({*phases, *(each.phase for each in job.compute if each.phase is not None)}):
        floor_s = math.fsum(each.seconds for each in job.compute if each.phase == phase)
        steps.append(Step(phase, tuple(GIGABITS * size for size in phases.get(phase, nothing)), floor_s))
    return DesignedJob(job.job_id, job.weight or 1.0, tuple(steps), way, spec)
