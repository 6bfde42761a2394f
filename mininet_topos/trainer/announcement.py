"""Announcement of a job of the trainer."""

from __future__ import annotations

from collections.abc import Sequence

from signalbox.jobs.spec import Algorithm, JobSpec, Striping


def announcement(
    job_id: str,
    peers: Sequence[str],
    algorithm: Algorithm,
    vector_bytes: int,
    lease_s: float,
    max_subflows: int = 1,
    striping: Striping = Striping.BY_SHARE,
    reports_connections: bool = False,
) -> JobSpec:
    """Return the spec of a job of one group that runs one collective per iteration. Raises ``InvalidInput``.

    Ranks are in the order of ``peers``."""
    return JobSpec.parse(
        {
            "job_id": job_id,
            "endpoints": tuple(peers),
            "groups": [{"name": "all", "ranks": tuple(range(len(peers)))}],
            "collectives": [{"algorithm": algorithm, "groups": ["all"], "bytes_per_iteration": vector_bytes}],
            "max_subflows": max_subflows,
            "striping": striping,
            "reports_connections": reports_connections,
            "lease_s": lease_s,
        }
    )
