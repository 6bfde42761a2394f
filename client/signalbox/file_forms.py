"""Short forms that a job has in files: hosts in place of endpoints, a model in place of groups and collectives.

In: plain data with the fields of a ``JobInFile``. Out: the ``JobSpec`` that they stand for, in which no short form is
left; or ``InvalidInput`` with the paths of what was given. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, product
from math import prod
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from signalbox.errors import FieldProblem, InvalidInput, field_problems
from signalbox.jobs.collectives import check
from signalbox.jobs.spec import MAX_ENDPOINTS, MAX_RAILS, IPv4, JobSpec, Library, Rail, Whole
from signalbox.models import NamedModel, Parallelism, traffic

_RANGE = re.compile(r"(0|[1-9]\d{0,2})(?:-(0|[1-9]\d{0,2}))?")


def _in_range(text: str) -> str:
    """Whether each of four numbers is one from 0 to 255, or a range of them. What they name is looked at later."""
    parts = [_RANGE.fullmatch(part) for part in text.split(".")]
    if len(parts) != 4 or not all(part and int(part[1]) <= int(part[2] or part[1]) <= 255 for part in parts):
        hint = ""
        if any(map(str.isalpha, text)):
            hint = "; only signalbox run --hosts and signalbox jobs keep look names up"
        elif re.search(r"[,\s]", text):
            hint = "; several are a list, [10.0.1.1, 10.0.2.1]"
        raise PydanticCustomError("hosts", f"must be IPv4 addresses such as 10.0.1.2, 10.0.1.1-8 or 10.0.1-4.1-8{hint}")
    return text


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Hosts = Annotated[
    tuple[Annotated[str, AfterValidator(_in_range)], ...],
    BeforeValidator(_as_list),
    Field(min_length=1, max_length=MAX_ENDPOINTS),
]
"""Addresses, with ranges; a single text is a list of one."""


class RailInFile(Rail):
    """``hosts`` in place of ``endpoints``: the address of each host's NIC."""

    endpoints: tuple[IPv4, ...] = Field(default=(), max_length=MAX_ENDPOINTS)
    hosts: Hosts | None = None


class JobInFile(JobSpec):
    """``hosts``: in rank order, in place of ``endpoints``; each address counts for ``ranks_per_host`` ranks. ``model``
    and ``parallelism``: in place of groups, collectives and transfers."""

    endpoints: tuple[IPv4, ...] = Field(default=(), max_length=MAX_ENDPOINTS)
    rails: tuple[RailInFile, ...] = Field(default=(), max_length=MAX_RAILS)
    hosts: Hosts | None = None
    ranks_per_host: Whole = Field(default=1, ge=1, le=MAX_ENDPOINTS)
    model: NamedModel | None = None
    parallelism: Parallelism | None = None


def job_in(data: Any) -> JobSpec:
    """``data``: a mapping of the field names. Raises ``InvalidInput`` with what is wrong with short forms, else with
    what ``JobSpec.parse`` or ``check`` finds."""
    try:
        job = JobInFile.model_validate(data)
    except ValidationError as error:
        raise InvalidInput(field_problems(error, JobInFile)) from None
    InvalidInput.refuse(_misplaced(job, data))
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


def _misplaced(job: JobInFile, data: Any) -> Iterator[FieldProblem]:
    """What stands beside each other and cannot, or needs what is not there."""
    if "endpoints" in data and "hosts" in data:
        yield FieldProblem("hosts", "give hosts or endpoints, not both")
    elif "endpoints" not in data and "hosts" not in data:
        yield FieldProblem("endpoints", "is missing: give the address of each rank, or hosts")
    if "ranks_per_host" in data and "hosts" not in data:
        yield FieldProblem("ranks_per_host", "is for hosts; endpoints have an address per rank")
    for r, rail in enumerate(job.rails):
        if bool(rail.endpoints) == bool(rail.hosts):
            yield FieldProblem(f"rails[{r}]", "give endpoints or hosts, one of them")
        elif rail.hosts and "hosts" not in data:
            yield FieldProblem(f"rails[{r}].hosts", "is for jobs with hosts; give endpoints, an address per rank")
    if job.model is not None:
        for name in ("groups", "collectives", "transfers"):
            if name in data:
                yield FieldProblem(name, "is what the model stands for: give one or the other")
        if job.library is Library.OPENMPI:
            message = "must be another one with a model: what openmpi sends depends on the size of each call"
            yield FieldProblem("library", message)
    elif job.parallelism is not None:
        yield FieldProblem("parallelism", "is for a model, which is missing")


def _without_hosts(job: JobInFile) -> dict[str, Any]:
    """Endpoints and rails, each with an address per rank."""
    if job.hosts is None:
        return {"rails": [{"endpoints": rail.endpoints} for rail in job.rails], "endpoints": job.endpoints}
    hosts = addresses_in("hosts", job.hosts)
    ranks = len(hosts) * job.ranks_per_host
    if ranks > MAX_ENDPOINTS:
        message = f"with {job.ranks_per_host} ranks each these are {ranks}; at most {MAX_ENDPOINTS} are allowed"
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
    """Of each range in order, its last number counting fastest."""
    ranges = [[_numbers(part) for part in text.split(".")] for text in hosts]
    count = sum(prod(map(len, parts)) for parts in ranges)
    if count > MAX_ENDPOINTS:
        raise InvalidInput.of(path, f"at most {MAX_ENDPOINTS} hosts are allowed (given: {count})")
    found = [".".join(map(str, numbers)) for numbers in chain.from_iterable(product(*parts) for parts in ranges)]
    ((most, times),) = Counter(found).most_common(1)
    if times > 1:
        raise InvalidInput.of(path, f"{most} is there {times} times; a host is there once, for ranks_per_host ranks")
    return found


def _numbers(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def _as_given(problem: FieldProblem, data: Any) -> FieldProblem:
    """Of what a short form stands for, told as the short form's. Endpoints come from hosts, all else from the model."""
    name, item = re.findall(r"^(\w+)(?:\[(\d+)\])?", problem.path)[0]
    if name in data and not (name == "rails" and item and "hosts" in data["rails"][int(item)]):
        return problem
    if name == "rails":
        return replace(problem, path=f"rails[{item}].hosts")
    given = "hosts" if name == "endpoints" else "model"
    if problem.path == "endpoints":
        return replace(problem, path=given)
    return replace(problem, path=given, message=f"{problem.path}: {problem.message}")
