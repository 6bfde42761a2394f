"""Jobs with alternative parallelizations, read from files of job specs: one spec for each parallelization.

The files have the fields of a job file and of ``JobInDesign`` (docs/wiring.md#job-files). Addresses may be left out.
The results are ``Offer``s, whose servers get made-up addresses; ``InvalidInput`` names the place of each error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from controller.public.wirings import Offer, Way
from offline.design.jobs import JobInDesign
from signalbox.errors import FieldProblem, InvalidInput, validated
from signalbox.file_forms import addresses_in, job_in, misplaced_parallelizations, parallelizations_in
from signalbox.files import called
from signalbox.jobs.spec import MAX_ENDPOINTS
from signalbox.spec_files import data_in, placed

_ONLY_HERE = ("weight", "placement", "compute", "parallelizations", "hosts", "endpoints", "ranks_per_host")
"""Fields of a job that are not copied into the spec of a parallelization."""


def offers_in(files: Iterable[Path], servers: int) -> list[Offer]:
    """Return one ``Offer`` per job in the files: the job with its parallelizations. Raises ``InvalidInput``.

    ``servers``: number of servers of the fabric; a job without addresses gets all servers."""
    found: list[Offer] = []
    problems: list[FieldProblem] = []
    for path in files:
        jobs = data_in(path, called(path))
        if not jobs:
            problems.append(FieldProblem(called(path), "there is no job in this file"))
        for data, place_of in jobs:
            try:
                with placed(place_of):
                    found.append(_offer(data, servers))
            except InvalidInput as error:
                problems += error.problems
    InvalidInput.refuse(problems)
    ids = Counter(offer.job_id for offer in found)
    InvalidInput.refuse(
        FieldProblem("job_id", f"'{job}' is the id of {n} jobs; each needs an id of its own")
        for job, n in ids.items()
        if n > 1
    )
    needed = sum(offer.servers for offer in found)
    if needed > servers:
        raise InvalidInput.of(
            "--servers", f"must be at least {needed}, the servers that all jobs need together (given: {servers})"
        )
    return found


def _offer(data: Any, servers: int) -> Offer:
    job = validated(JobInDesign, data)
    InvalidInput.refuse(_misplaced(job, data))
    count, ranks_each = _servers_and_ranks(job, servers)
    addresses = [f"10.0.{1 + number >> 8}.{1 + number & 255}" for number in range(count)]
    common = {name: value for name, value in data.items() if name not in _ONLY_HERE}
    common |= {"endpoints": [address for address in addresses for _ in range(ranks_each)]}
    if not job.parallelizations:
        return Offer(job.job_id, count, (Way("as given", job_in(common), job.compute),))
    specs = zip(job.parallelizations, parallelizations_in(job, common), strict=True)
    return Offer(job.job_id, count, tuple(Way(each.name, spec, each.compute) for each, spec in specs))


def _servers_and_ranks(job: JobInDesign, servers: int) -> tuple[int, int]:
    """Return the number of servers, and the number of ranks on each server. Raises ``InvalidInput``."""
    if job.hosts:
        count, ranks_each = len(addresses_in("hosts", job.hosts)), job.ranks_per_host
    elif job.endpoints:
        of_address = Counter(job.endpoints)
        count, ranks_each = len(of_address), len(job.endpoints) // len(of_address)
        if list(job.endpoints) != [address for address in of_address for _ in range(ranks_each)]:
            message = "must list the ranks server by server, with the same number of ranks on every server"
            raise InvalidInput.of("endpoints", message)
    else:
        count, ranks_each = servers, job.ranks_per_host
    if count * ranks_each > MAX_ENDPOINTS:
        message = (
            f"{count} servers with {ranks_each} ranks each have too many ranks; at most {MAX_ENDPOINTS} are allowed"
        )
        raise InvalidInput.of("endpoints", message)
    if not 2 <= count <= servers:
        message = f"must be from 2 to {servers} servers, the number in the fabric (given: {count})"
        raise InvalidInput.of("hosts" if job.hosts else "endpoints", message)
    return count, ranks_each


def _misplaced(job: JobInDesign, data: Mapping[str, Any]) -> Iterator[FieldProblem]:
    if "hosts" in data and "endpoints" in data:
        yield FieldProblem("hosts", "give hosts or endpoints, not both")
    for name in ("rails", "placement"):
        if data.get(name):
            yield FieldProblem(name, "does not apply to a direct-connect fabric")
    if job.parallelizations:
        yield from misplaced_parallelizations(job, data)
    elif job.model is None and job.observed:
        yield FieldProblem("", "the job has no traffic: give a model, collectives or transfers")
