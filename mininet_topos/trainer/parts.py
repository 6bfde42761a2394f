"""Iteration of a whole job: phase after phase, and in each phase all collectives at once.

In: a file with the fields of a ``JobSpec`` in JSON. Out: a ``WholeJob``. Pure except for reading the file.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from mininet_topos.trainer.collective import COLLECTIVES
from signalbox.errors import FieldProblem, InvalidInput
from signalbox.jobs.spec import Algorithm, Collective, Compute, JobSpec, Library, Transfer

FLOAT_BYTES = 4

RINGS: Mapping[Algorithm, Algorithm] = MappingProxyType(
    {
        Algorithm.ALL_REDUCE: Algorithm.RING_ALL_REDUCE,
        Algorithm.REDUCE_SCATTER: Algorithm.RING_REDUCE_SCATTER,
        Algorithm.ALL_GATHER: Algorithm.RING_ALL_GATHER,
    }
)
"""Algorithm of the ``generic`` library for each collective (``signalbox.jobs.formulas``)."""


class Part(NamedTuple):
    """Collective of one group, or without ``algorithm`` the transfers of one step.

    ``ranks``: ranks of the job that take part, in order. ``elements``: number of float32 values of each rank's vector.
    ``transfers``: number of float32 values by (sender, receiver), both as indices into ``ranks``."""

    name: str
    ranks: tuple[int, ...]
    algorithm: Algorithm | None
    elements: int = 0
    transfers: Mapping[tuple[int, int], int] = MappingProxyType({})


class PhaseOfJob(NamedTuple):
    """Phase of a job. ``sequences`` begin together; the parts of one sequence follow each other.

    ``floor_s``: least seconds that the phase takes. ``before_s``: seconds of computing before it, without overlap."""

    number: int
    sequences: tuple[tuple[Part, ...], ...]
    floor_s: float
    before_s: float


class WholeJob(NamedTuple):
    """Whole job. The phases of a job with parallelizations are those of the first parallelization.

    ``compute``: computing times in the file. ``alone_s``: seconds of computing before the first phase."""

    spec: JobSpec
    compute: tuple[Compute, ...]
    alone_s: float
    phases: tuple[PhaseOfJob, ...]

    @property
    def parts(self) -> Iterator[Part]:
        """Parts in the order in which all ranks connect."""
        return (part for phase in self.phases for sequence in phase.sequences for part in sequence)


def read_job(path: Path) -> WholeJob:
    """Return the job in a file. Raises ``OSError``, and ``InvalidInput`` for features that are not emulated."""
    try:
        data = json.loads(path.read_text())
    except ValueError as error:
        raise InvalidInput.of(str(path), f"is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InvalidInput.of(str(path), "must be an object with the fields of a job spec")
    spec = JobSpec.parse(data)
    return whole_job(spec, (spec.parallelizations[0] if spec.parallelizations else spec).compute)


def as_wired(job: WholeJob, parallelization: str, runs: JobSpec) -> WholeJob:
    """Return the job as a controller has wired it: with one of its parallelizations, and with other rings.

    Raises ``InvalidInput`` for features that are not emulated."""
    compute = next((each.compute for each in job.spec.parallelizations if each.name == parallelization), job.compute)
    return whole_job(runs, compute)


def whole_job(spec: JobSpec, compute: Sequence[Compute] = ()) -> WholeJob:
    """Return the job of a spec. Raises ``InvalidInput`` for features that are not emulated."""
    sends = spec.plain
    InvalidInput.refuse(_not_emulated(sends))
    sequences = _sequences(sends)
    alone_s = math.fsum(each.seconds for each in compute if each.phase is each.before is None)
    computed = {number for each in compute for number in (each.phase, each.before) if number is not None}
    phases = (
        PhaseOfJob(
            number,
            tuple(sequences.get(number, ())),
            math.fsum(each.seconds for each in compute if each.phase == number),
            math.fsum(each.seconds for each in compute if each.before == number),
        )
        for number in sorted({*sequences, *computed})
    )
    return WholeJob(spec, tuple(compute), alone_s, tuple(phases))


def _not_emulated(spec: JobSpec) -> Iterator[FieldProblem]:
    if spec.library is not Library.GENERIC:
        yield FieldProblem("library", f"'{spec.library}' is not emulated; choose {Library.GENERIC}")
    if spec.max_subflows > 1:
        yield FieldProblem("max_subflows", "must be 1, because flows are not split here")
    if spec.rails:
        yield FieldProblem("rails", "are not emulated")
    for c, collective in enumerate(spec.collectives):
        if _run_as(collective) not in COLLECTIVES:
            known = ", ".join([*COLLECTIVES, *RINGS])
            message = f"'{collective.algorithm}' is not emulated; choose one of {known}"
            yield FieldProblem(f"collectives[{c}].algorithm", message)


def _run_as(collective: Collective) -> Algorithm:
    return RINGS.get(collective.algorithm, collective.algorithm)


def _sequences(spec: JobSpec) -> Mapping[int, list[tuple[Part, ...]]]:
    ranks = {group.name: group.ranks for group in spec.groups}
    found: defaultdict[int, list[tuple[Part, ...]]] = defaultdict(list)
    for c, collective in enumerate(spec.collectives):
        elements = _elements(collective.bytes_per_iteration)
        for g, name in enumerate(collective.groups):
            found[collective.phase].append((Part(f"{c}-{g}", ranks[name], _run_as(collective), elements),))
    of_phase: defaultdict[int, defaultdict[int, list[Transfer]]] = defaultdict(lambda: defaultdict(list))
    for transfer in spec.transfers:
        of_phase[transfer.phase][transfer.step].append(transfer)
    for phase, steps in of_phase.items():
        found[phase].append(tuple(_step(f"{phase}.{step}", steps[step]) for step in sorted(steps)))
    return found


def _step(name: str, transfers: Sequence[Transfer]) -> Part:
    ranks = tuple(sorted({rank for each in transfers for rank in (each.src, each.dst)}))
    sent: defaultdict[tuple[int, int], int] = defaultdict(int)
    for each in transfers:
        sent[ranks.index(each.src), ranks.index(each.dst)] += _elements(each.bytes_per_iteration)
    return Part(name, ranks, None, transfers=dict(sent))


def _elements(size: int) -> int:
    return -(-size // FLOAT_BYTES)
