"""What launchers of jobs say in the environment of what they start. Pure."""

from __future__ import annotations

from collections.abc import Mapping

JOB = "SIGNALBOX_JOB"
TAKE_OVER = "SIGNALBOX_TAKE_OVER"
"""Set by what announces a job for a program that it starts."""

HOW_TO_NAME_THE_JOB = f"give it, or set {JOB}"


def job_id_of_environment(environ: Mapping[str, str]) -> str | None:
    """The id of the job that a process belongs to: SIGNALBOX_JOB, which ``signalbox run`` sets; else that of Slurm's
    job; else the id that torchrun was given. None: no launcher says it."""
    if job_id := environ.get(JOB):
        return job_id
    if number := environ.get("SLURM_JOB_ID"):
        return f"slurm-{number}"
    run_id = environ.get("TORCHELASTIC_RUN_ID", "")
    return None if run_id in ("", "none") else run_id  # torchrun's default is the text


def takes_over(environ: Mapping[str, str]) -> bool:
    """Whether what started this process announces the job too, and leaves it to a better announcement."""
    return environ.get(TAKE_OVER, "") not in ("", "0")


def rank_of(environ: Mapping[str, str]) -> int | None:
    """Of this process, from what has started it: innermost first, since a launcher may be started by another one. None:
    it is not one of several."""
    of_torch = ("RANK",) if "TORCHELASTIC_RUN_ID" in environ else ()
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", *of_torch, "SLURM_PROCID", "RANK")
    return next((int(environ[name]) for name in names if environ.get(name, "").isdigit()), None)
