"""Form of a job id, and the environment variables in which launchers tell a process its job and rank.

This module has no slow imports, unlike ``jobs.spec``, which checks whole job specs."""

from __future__ import annotations

import re
from collections.abc import Mapping

JOB_ID = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
JOB_ID_FORM = "must have 1 to 63 lower-case letters, digits, '.', '_' and '-', a letter or digit at both ends"


JOB = "SIGNALBOX_JOB"
TAKE_OVER = "SIGNALBOX_TAKE_OVER"
"""Environment variable that a launcher sets for its program when the launcher has announced the job.

The program may then replace the launcher's announcement by its own (``takes_over``)."""

HOW_TO_NAME_THE_JOB = f"give it, or set {JOB}"


def job_id_of_environment(environ: Mapping[str, str]) -> str | None:
    """Return the id of the job that this process belongs to; None when no launcher has set one.

    The id is the variable SIGNALBOX_JOB, which ``signalbox run`` sets; else ``slurm-`` and Slurm's job number; else
    torchrun's run id."""
    if job_id := environ.get(JOB):
        return job_id
    if number := environ.get("SLURM_JOB_ID"):
        return f"slurm-{number}"
    run_id = environ.get("TORCHELASTIC_RUN_ID", "")
    return None if run_id in ("", "none") else run_id  # torchrun's default run id is "none"


def takes_over(environ: Mapping[str, str]) -> bool:
    """Return whether a launcher has announced the job, and lets this process replace the announcement."""
    return environ.get(TAKE_OVER, "") not in ("", "0")


def rank_of(environ: Mapping[str, str]) -> int | None:
    """Return this process's rank; None when no launcher has set one.

    A launcher may start another launcher; the variables of the inner launcher have precedence."""
    of_torch = ("RANK",) if "TORCHELASTIC_RUN_ID" in environ else ()
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", *of_torch, "SLURM_PROCID", "RANK")
    return next((int(environ[name]) for name in names if environ.get(name, "").isdigit()), None)
