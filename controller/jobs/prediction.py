"""Whether a job's communication time follows from the load of links.

It does where hosts send as fast as the links let them. It does not where each step needs the whole result of the one
before, because the time between the steps is not the network's, nor where many hosts send to one at once, because its
port decides who waits. Measured on one flat switch (docs/joining.md): halving-doubling and all-to-all take up to 2.6
times their ideal time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from controller.jobs.collectives import VirtualLink, formulas_of
from controller.jobs.formulas import ALL_TO_ALL, HALVING_DOUBLING_ALL_REDUCE, RECURSIVE_HALVING_REDUCE_SCATTER
from controller.jobs.registry import Job

STEPS_WAIT = (HALVING_DOUBLING_ALL_REDUCE, RECURSIVE_HALVING_REDUCE_SCATTER)

MOST_AT_ONCE = 2
"""Senders to one receiver: two rings that overlap."""


def prediction_withheld(job: Job) -> str:
    """Why the level is no prediction of the job's efficiency; empty when it is one."""
    found = formulas_of(job.spec)
    if found & {*STEPS_WAIT}:
        return "each step of its halving collectives waits for the one before; how long is not the network's doing"
    most = _most_senders(job.virtual_links)
    if ALL_TO_ALL in found or most > MOST_AT_ONCE:
        return f"up to {most} hosts send to one at once; how its port is shared is not known"
    return ""


def _most_senders(links: Iterable[VirtualLink]) -> int:
    """To one host in one phase."""
    senders: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    for link in links:
        senders[link.phase, link.dst_ip].add(link.src_ip)
    return max(map(len, senders.values()), default=0)
