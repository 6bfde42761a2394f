"""Jobs of an offline plan that are described by files of job specs, as they are announced to a controller.

The file format, its errors, and the rules by which jobs are accepted together are those of the controller. There are
two differences: the number of jobs is not limited, and all hosts and the traffic of each job must be known.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

from controller.public.jobs import JobRegistry, RegisterJob
from controller.public.problems import Fabric
from offline.scenarios.workloads import WorkloadJob, announced
from signalbox.errors import FieldProblem, InvalidInput
from signalbox.jobs.spec import JobSpec
from signalbox.spec_files import FORMS, jobs_in


def read_jobs(path: Path, fabric: Fabric, others: Collection[WorkloadJob] = ()) -> tuple[WorkloadJob, ...]:
    """Return the jobs of a file of job specs, or of all such files of a folder in the order of their names.

    Jobs whose ranks are all on one host have no flows and are left out. ``others``: jobs of a workload on the same
    fabric. Raises the errors with which a controller refuses a job."""
    accepted = JobRegistry(max_jobs=sys.maxsize, max_virtual_links=sys.maxsize)
    for file in _files(path):
        for job in jobs_in(file):
            with job.errors_placed():
                InvalidInput.refuse(_unplannable(job.spec, fabric))
                accepted.register(RegisterJob(job.spec), 0.0)
    jobs = tuple(announced(job.spec, fabric, _compute_s(job.spec)) for job in accepted.jobs.values() if job.pairs)
    InvalidInput.refuse(chain.from_iterable(_taken(job, other) for job in jobs for other in others))
    return jobs


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in FORMS and file.is_file())
    if not files:
        raise InvalidInput.of(str(path), f"holds no file of job specs (*{', *'.join(FORMS)})")
    return files


def _unplannable(spec: JobSpec, fabric: Fabric) -> Iterator[FieldProblem]:
    if spec.observed:
        message = "the job announces no traffic, so there is nothing to plan: give a model, collectives or transfers"
        yield FieldProblem("", message)
    nics = (
        ("endpoints", spec.endpoints),
        *((f"rails[{n}].endpoints", of.endpoints) for n, of in enumerate(spec.rails)),
    )
    hosts = list(fabric.hosts)
    for name, addresses in nics:
        if foreign := [(rank, ip) for rank, ip in enumerate(addresses) if ip not in fabric.hosts]:
            (rank, ip), more = foreign[0], f" and {len(foreign) - 1} more" if foreign[1:] else ""
            message = f"{ip}{more}: no host of the fabric; it has {len(hosts):,} hosts, {hosts[0]} to {hosts[-1]}"
            yield FieldProblem(f"{name}[{rank}]", message)


def _taken(job: WorkloadJob, other: WorkloadJob) -> Iterator[FieldProblem]:
    if job.id == other.id:
        yield FieldProblem("", f"'{job.id}' is the id of a job of --workload and of one of --jobs; rename one of them")
    if taken := () if job.owner else job.pairs & other.pairs:
        src, dst = min(taken)
        more = f" (pairs taken: {len(taken)})" if len(taken) > 1 else ""
        message = f"job '{job.id}' cannot announce {src} > {dst}: job '{other.id}' of --workload has this pair{more}"
        yield FieldProblem("", message)


def _compute_s(spec: JobSpec) -> float:
    """Return the seconds of computing during which no phase runs, for the first parallelization of the spec."""
    return sum(of.seconds for way in spec.parallelizations[:1] for of in way.compute if of.phase is None)
