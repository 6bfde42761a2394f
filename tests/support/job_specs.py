"""Specs of jobs whose ranks are all in one group."""

from collections.abc import Mapping, Sequence
from typing import Any

from signalbox.jobs.spec import JobSpec


def sends(algorithm: str, size: int, **more: Any) -> dict[str, Any]:
    """Return a collective of the group of all ranks, with ``size`` bytes per iteration."""
    return {"algorithm": algorithm, "groups": ["dp"], "bytes_per_iteration": size, **more}


def job_spec(job_id: str, ips: Sequence[str], *collectives: Mapping[str, Any], **more: Any) -> JobSpec:
    groups = [{"name": "dp", "ranks": range(len(ips))}]
    return JobSpec.parse({"job_id": job_id, "endpoints": ips, "groups": groups, "collectives": collectives, **more})
