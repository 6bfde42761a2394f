"""Short forms in files of jobs: hosts instead of endpoints, a model instead of groups and collectives.

``job_in`` takes plain data with the fields of a ``JobInFile``, and returns the ``JobSpec`` that these data abbreviate.
Errors have paths of the given data. The functions have no side effects."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from signalbox.errors import FieldProblem, InvalidInput, validated
from signalbox.ip_addresses import AddressRange, HostAddress, addresses_of_range
from signalbox.jobs.collectives import check
from signalbox.jobs.spec import (
    MAX_ENDPOINTS,
    MAX_PARALLELIZATIONS,
    MAX_RAILS,
    SENDS,
    JobSpec,
    Library,
    Parallelization,
    Rail,
    Whole,
    at_most,
)
from signalbox.models import NamedModel, Parallelism, traffic

SAYS = (*SENDS, "model", "parallelism")
"""Fields of a file that describe traffic.

A job without parallelizations has these fields itself; otherwise each of its parallelizations has them."""


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Hosts = Annotated[
    tuple[AddressRange, ...],
    at_most(MAX_ENDPOINTS),
    BeforeValidator(_as_list),
    Field(min_length=1),
]
"""Addresses and ranges of addresses, as ``addresses_in`` takes them. In a file, a single text may replace the list."""


class RailInFile(Rail):
    """A rail with ``endpoints``, or with its short form ``hosts``: the NIC address of each host."""

    endpoints: Annotated[tuple[HostAddress, ...], at_most(MAX_ENDPOINTS)] = ()
    hosts: Hosts | None = None


class ParallelizationInFile(Parallelization):
    """A parallelization that may describe its traffic by ``model`` and ``parallelism``, as a ``JobInFile`` may."""

    model: NamedModel | None = None
    parallelism: Parallelism | None = None


class JobInFile(JobSpec):
    """A job spec that may use short forms.

    ``hosts`` replaces ``endpoints``: each address, in rank order, stands for ``ranks_per_host`` ranks. ``model`` and
    ``parallelism`` replace groups, collectives and transfers."""

    endpoints: Annotated[tuple[HostAddress, ...], at_most(MAX_ENDPOINTS)] = ()
    rails: Annotated[tuple[RailInFile, ...], at_most(MAX_RAILS)] = ()
    hosts: Hosts | None = None
    ranks_per_host: Whole = Field(default=1, ge=1, le=MAX_ENDPOINTS)
    model: NamedModel | None = None
    parallelism: Parallelism | None = None
    parallelizations: Annotated[tuple[ParallelizationInFile, ...], at_most(MAX_PARALLELIZATIONS)] = ()


def job_in(data: Any) -> JobSpec:
    """Return the job spec for ``data``, a mapping of field names to values that may use short forms.

    Raises ``InvalidInput`` with the problems of the short forms. If the short forms have no problems, raises
    ``InvalidInput`` with the problems that ``JobSpec.parse`` or ``check`` finds."""
    job = validated(JobInFile, data)
    InvalidInput.refuse(_misplaced(job, data))
    if job.parallelizations:
        return _with_parallelizations(job, parallelizations_in(job, data))
    plain = {name: getattr(job, name) for name in JobSpec.model_fields if name in data}
    plain |= _without_hosts(job)
    if job.model is not None:
        plain |= traffic(job.model, job.parallelism or Parallelism(), plain["endpoints"])._asdict()
    try:
        spec = JobSpec.parse(plain)
        InvalidInput.refuse(check(spec))
    except InvalidInput as error:
        raise InvalidInput(tuple(_as_given(problem, data) for problem in error.problems)) from None
    return spec


def parallelizations_in(job: JobInFile, data: Mapping[str, Any]) -> tuple[JobSpec, ...]:
    """Return one job spec per parallelization of ``job``, as if the job had only that parallelization.

    ``data``: the job's fields, as ``job_in`` takes them. The caller checks the limits that concern all parallelizations
    together. Raises ``InvalidInput``."""
    common = {name: value for name, value in data.items() if name != "parallelizations"}
    found = []
    problems: list[FieldProblem] = []
    for number, way in enumerate(job.parallelizations):
        says = {name: getattr(way, name) for name in SAYS if name in way.model_fields_set}
        try:
            found.append(job_in({**common, **says}))
        except InvalidInput as error:
            problems += [_in_parallelization(problem, number) for problem in error.problems]
    InvalidInput.refuse(dict.fromkeys(problems))
    return tuple(found)


def _in_parallelization(problem: FieldProblem, number: int) -> FieldProblem:
    """Return the problem with the parallelization's number in its path, if its field describes traffic (``SAYS``).

    All other fields belong to the job as a whole, so the paths of their problems stay unchanged."""
    of_parallelization = re.split(r"[.\[]", problem.path)[0] in SAYS
    return replace(problem, path=f"parallelizations[{number}].{problem.path}") if of_parallelization else problem


def _with_parallelizations(job: JobInFile, specs: Sequence[JobSpec]) -> JobSpec:
    """Return the job with all its parallelizations. Raises ``InvalidInput``.

    ``specs``: result of ``parallelizations_in``."""
    common = {name: getattr(specs[0], name) for name in specs[0].model_fields_set if name not in SENDS}
    parallelizations = [
        {"name": way.name, "compute": way.compute, **{name: getattr(spec, name) for name in SENDS}}
        for way, spec in zip(job.parallelizations, specs, strict=True)
    ]
    spec = JobSpec.parse({**common, "parallelizations": parallelizations})
    InvalidInput.refuse(check(spec))
    return spec


def misplaced_parallelizations(job: JobInFile, data: Mapping[str, Any]) -> Iterator[FieldProblem]:
    """Yield problems that involve several parallelizations, or fields that cannot be combined with parallelizations."""
    given = (name for name in (*SAYS, "compute") if name in data)
    return job.wrong_parallelizations(given, "a model, collectives or transfers")


def _misplaced(job: JobInFile, data: Any) -> Iterator[FieldProblem]:
    if "endpoints" in data and "hosts" in data:
        yield FieldProblem("hosts", "give hosts or endpoints, not both")
    elif "endpoints" not in data and "hosts" not in data:
        yield FieldProblem("endpoints", "is missing: give endpoints (the address of each rank) or hosts")
    if "ranks_per_host" in data and "hosts" not in data:
        yield FieldProblem("ranks_per_host", "is only for jobs with hosts; endpoints have an address per rank")
    for r, rail in enumerate(job.rails):
        if bool(rail.endpoints) == bool(rail.hosts):
            yield FieldProblem(f"rails[{r}]", "give either endpoints or hosts")
        elif rail.hosts and "hosts" not in data:
            yield FieldProblem(f"rails[{r}].hosts", "is for jobs with hosts; give endpoints, an address per rank")
    if job.parallelizations:
        yield from misplaced_parallelizations(job, data)
    elif job.model is not None:
        for name in SENDS:
            if name in data:
                yield FieldProblem(name, "cannot be combined with a model, which defines the traffic: omit one of them")
        if job.library is Library.OPENMPI:
            message = "must not be openmpi with a model: the traffic of openmpi depends on the size of each call"
            yield FieldProblem("library", message)
    elif job.parallelism is not None:
        yield FieldProblem("parallelism", "describes how a model is divided: give a model too, or omit it")


def _without_hosts(job: JobInFile) -> dict[str, Any]:
    if job.hosts is None:
        return {"rails": [{"endpoints": rail.endpoints} for rail in job.rails], "endpoints": job.endpoints}
    hosts = addresses_in("hosts", job.hosts)
    ranks = len(hosts) * job.ranks_per_host
    if ranks > MAX_ENDPOINTS:
        message = (
            f"at most {MAX_ENDPOINTS} ranks are allowed (given: {len(hosts)} hosts with {job.ranks_per_host} each)"
        )
        raise InvalidInput.of("hosts", message)
    rails = []
    for r, rail in enumerate(job.rails):
        nics = rail.endpoints
        if rail.hosts:
            of_hosts = addresses_in(f"rails[{r}].hosts", rail.hosts)
            if len(of_hosts) != len(hosts):
                message = f"one address per host is needed: {len(hosts)} (given: {len(of_hosts)})"
                raise InvalidInput.of(f"rails[{r}].hosts", message)
            nics = _for_ranks(of_hosts, job.ranks_per_host)
        rails.append({"endpoints": nics})
    return {"rails": rails, "endpoints": _for_ranks(hosts, job.ranks_per_host)}


def _for_ranks(hosts: Iterable[str], ranks_per_host: int) -> tuple[str, ...]:
    return tuple(host for host in hosts for _ in range(ranks_per_host))


def addresses_in(path: str, hosts: Sequence[str]) -> list[str]:
    """Return the addresses in the ranges, in order; the last number of an address changes fastest.

    ``path``: path of the field for errors. Raises ``InvalidInput`` when there are too many addresses, or an address is
    repeated."""
    counts, ranges = zip(*map(addresses_of_range, hosts), strict=True)
    count = sum(counts)
    if count > MAX_ENDPOINTS:
        raise InvalidInput.of(path, f"at most {MAX_ENDPOINTS} hosts are allowed (given: {count})")
    found = list(chain.from_iterable(ranges))
    ((most, times),) = Counter(found).most_common(1)
    if times > 1:
        raise InvalidInput.of(
            path, f"{most} appears {times} times; list a host once, with ranks_per_host for its ranks"
        )
    return found


def _as_given(problem: FieldProblem, data: Any) -> FieldProblem:
    """Return the problem with the path of the field as it is in the file, which may be a short form.

    If the file lacks the field, the path becomes ``hosts`` for ``endpoints``, ``rails[0].hosts`` for the endpoints of a
    rail, and ``model`` for any other field."""
    name, item = re.findall(r"^(\w+)(?:\[(\d+)\])?", problem.path)[0]
    if name in data and not (name == "rails" and item and "hosts" in data["rails"][int(item)]):
        return problem
    if name == "rails":
        return replace(problem, path=f"rails[{item}].hosts")
    given = "hosts" if name == "endpoints" else "model"
    if problem.path == "endpoints":
        return replace(problem, path=given)
    return replace(problem, path=given, message=f"{problem.path}: {problem.message}")
