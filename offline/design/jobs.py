"""Jobs as a design has them, read from files of job specs: how much each phase sends in each dimension.

In: YAML, JSON or TOML with the fields of a job file, of which the addresses may be left out, and those of ``DesignJob``
besides (docs/design.md); rank r is NPU r, unless a placement says otherwise. Out: ``DesignedJob``s, or ``InvalidInput``
with the places of what is wrong.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, ValidationError

from offline.design.loads import Loads, collective_bytes
from offline.design.placing import MEGATRON, Part, Placed, placements
from offline.design.question import Question, Term, term_s
from offline.design.shape import LEAST_GBPS, Ints, Shape
from signalbox.errors import FieldProblem, InvalidInput, field_problems
from signalbox.file_forms import JobInFile, addresses_in
from signalbox.jobs.library_profiles import formula
from signalbox.jobs.spec import MAX_COMPUTE, MAX_ENDPOINTS, Algorithm, Collective, Compute, JobSpec, Library, Number
from signalbox.models import Parallelism, misfits
from signalbox.spec_files import PlaceOf, data_in, placed
from signalbox.standard_input import called

GIGABITS = 8e-9
"""Of a byte."""

_AT_ONCE = 1 << 18
_SEND = np.dtype((float, 3))
"""Sender, receiver and bytes."""


class JobInDesign(JobInFile):
    """``weight``: of its time in the sum that is made small. ``placement``: in which order the parts of a model's
    parallelism fill the dimensions, from the first one."""

    weight: Annotated[Number, Field(gt=0, le=1e6, allow_inf_nan=False)] = 1.0
    compute: tuple[Compute, ...] = Field(default=(), max_length=MAX_COMPUTE)
    placement: tuple[Part, ...] | None = None


class Step(NamedTuple):
    """Takes the longer of ``floor_s`` and, of any dimension, gigabits / bandwidth. ``phase``: None of computing
    alone."""

    phase: int | None
    gigabits: tuple[float, ...]
    floor_s: float


@dataclass(frozen=True, slots=True)
class DesignedJob:
    """``steps`` follow each other. ``placed``: of one with a model; ``spec``: of one without."""

    job_id: str
    weight: float
    steps: tuple[Step, ...]
    placed: Placed | None = None
    spec: JobSpec | None = None

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(Term(self.weight, step.gigabits, step.floor_s) for step in self.steps)

    def step_times_s(self, gbps: Sequence[float]) -> tuple[float, ...]:
        return tuple(term_s(term, gbps) for term in self.terms)


def best_first(ways: Iterable[DesignedJob], gbps: Sequence[float]) -> list[DesignedJob]:
    """Placements of a job by its time; of those with the same time by their longest step, then by the next."""

    def key(way: DesignedJob) -> tuple[float, ...]:
        times = way.step_times_s(gbps)
        return tuple(_rounded(time_s) for time_s in (math.fsum(times), *sorted(times, reverse=True)))

    return sorted(ways, key=key)


def _rounded(time_s: float) -> float:
    return float(f"{time_s:.9g}")


def question_of(shape: Shape, jobs: Iterable[DesignedJob]) -> Question:
    """Where jobs send, an NPU has at least ``LEAST_GBPS``."""
    asked = Question(shape.names, tuple(term for job in jobs for term in job.terms), shape.limits)
    floors = (LEAST_GBPS if loaded else 0.0 for loaded in asked.loaded)
    least = tuple(map(max, asked.limits.least, floors))
    return replace(asked, limits=replace(asked.limits, least=least))


def designed_jobs(files: Iterable[Path], shape: Shape, every_placement: bool = False) -> list[list[DesignedJob]]:
    """Per job its placements: the one that it has, or with ``every_placement`` all of one with a model. Raises
    ``InvalidInput``."""
    found: list[list[DesignedJob]] = []
    problems: list[FieldProblem] = []
    for path in files:
        of_file = _of_file(path, shape, every_placement, problems)
        if not of_file and not problems:
            raise InvalidInput.of(called(path), "there is no job in it")
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
        try:
            job = JobInDesign.model_validate(data)
        except ValidationError as error:
            raise InvalidInput(field_problems(error, JobInDesign)) from None
        InvalidInput.refuse(_misplaced(job, data))
        ranks = _ranks(job, shape)
        if job.model is None:
            spec = _spec(job, ranks)
            return [_designed(job, _phases(spec, shape), shape, spec=spec)]
        parallelism = job.parallelism or Parallelism()
        if parallelism.data is None:
            divided = parallelism.tensor * parallelism.pipeline
            InvalidInput.refuse(misfits(job.model, parallelism, max(1, ranks // divided), ranks))
            parallelism = parallelism.model_copy(update={"data": ranks // divided})
        order = MEGATRON if job.placement is None else job.placement
        ways = placements(job.model, parallelism, shape, None if every else order)
        return [_designed(job, way.phases, shape, way) for way in ways]


def _misplaced(job: JobInDesign, data: Any) -> Iterator[FieldProblem]:
    if job.strategies:
        yield FieldProblem("strategies", "are for signalbox design wiring: give the fields of one of them here")
        return
    if job.model is None:
        for name in ("parallelism", "placement"):
            if name in data:
                yield FieldProblem(name, "is for a model, which is missing; without one rank r is NPU r")
        if job.observed:
            yield FieldProblem("", "what it sends is not known: give a model, collectives or transfers")
        return
    for name in ("groups", "collectives", "transfers"):
        if name in data:
            yield FieldProblem(name, "is what the model stands for: give one or the other")


def _ranks(job: JobInDesign, shape: Shape) -> int:
    """As many as it has addresses; of a job without them, as many as there are NPUs."""
    if job.hosts:
        ranks = len(addresses_in("hosts", job.hosts)) * job.ranks_per_host
    else:
        ranks = len(job.endpoints) or shape.npus
    if ranks > shape.npus:
        message = f"are {ranks:,} ranks; the network has {shape.npus:,} NPUs"
        raise InvalidInput.of("hosts" if job.hosts else "endpoints", message)
    return ranks


def _spec(job: JobInDesign, ranks: int) -> JobSpec:
    """With addresses that mean nothing: a design is of NPUs. Raises ``InvalidInput``."""
    if ranks > MAX_ENDPOINTS:
        message = f"has no addresses, so it has a rank per NPU, {ranks:,}; at most {MAX_ENDPOINTS:,} are allowed"
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


def _phases(spec: JobSpec, shape: Shape) -> dict[int, tuple[float, ...]]:
    """By phase the bytes of each dimension."""
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
    """Groups that are no block of NPUs send as in one flat ring; so do chains of a pipeline, whose order counts."""
    places = [np.unique(at) for at in shape.coordinates(ranks)]
    spans = [len(at) for at in places]
    algorithm, size = collective.algorithm, collective.bytes_per_iteration
    if math.prod(spans) == len(ranks) and algorithm is not Algorithm.PIPELINE_SEND:
        loads.add_collective(ranks, collective_bytes(algorithm, size, spans, shape.dimensions), places)
        return
    known = formula(Library.GENERIC, algorithm, len(ranks), size)
    for step in known.steps(len(ranks), size) if known else ():
        left = iter(step)
        while len(sends := np.fromiter(islice(left, _AT_ONCE), _SEND)):  # an all-to-all has millions
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
    return DesignedJob(job.job_id, job.weight, tuple(steps), way, spec)
