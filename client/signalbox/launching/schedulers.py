"""Hosts that a scheduler has allocated to a job: Slurm, PBS and LSF.

The hosts are read from the environment, in the scheduler's order, each with the number of ranks that it may have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from signalbox.errors import InvalidInput
from signalbox.standard_input import read_bytes


class Host(NamedTuple):
    """A host. ``slots``: number of ranks that it may have; None when it is unknown."""

    name: str
    slots: int | None


def allocated(environ: Mapping[str, str], step: bool) -> list[Host]:
    """Return the allocated hosts; none without a scheduler. Raises ``InvalidInput``.

    ``step``: return the hosts of this process's Slurm step. Otherwise return the hosts of the job, which launchers
    inside the job use."""
    for nodes, tasks in _SLURM[0 if step else 1 :]:
        if environ.get(nodes):
            return _of_slurm(environ[nodes], environ.get(tasks, ""))
    for name in ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE"):
        if environ.get(name):
            return each_once(text_of(environ[name]).split())
    return each_once(environ.get("LSB_HOSTS", "").split())


_SLURM = (("SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"), ("SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"))


def _of_slurm(nodes: str, tasks: str) -> list[Host]:
    """Return hosts with their slots; ``tasks`` such as ``2(x3),1`` stands for three times 2, then 1 (srun(1))."""
    from signalbox.host_addresses import host_names

    names = host_names(nodes)
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks)
    counts = [int(count) for count, times in found for _ in range(int(times or 1))]
    if len(counts) != len(names):
        return [Host(name, None) for name in names]
    return [Host(name, count) for name, count in zip(names, counts, strict=True)]


def each_once(names: Iterable[str]) -> list[Host]:
    """Return each host once; its slots are the number of times it is named."""
    return [Host(name, slots) for name, slots in Counter(names).items()]


def text_of(file: str) -> str:
    """Return the text of a file. Raises ``InvalidInput``."""
    try:
        return read_bytes(Path(file)).decode(errors="replace")
    except OSError as error:
        raise InvalidInput.of(file, error.strerror or str(error)) from None
