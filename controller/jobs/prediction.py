"""Whether a job's communication time follows from the load of links.

It does where hosts send as fast as the links let them. It does not where each step needs the whole result of the one
before, because the time between the steps is not the network's, nor where many hosts send to one at once, because its
port decides who waits, nor where two hosts send large messages to each other at once over one connection of Open MPI:
what lets one of them begin waits behind the bytes of the other, so that they often take turns. Measured on one flat
switch (docs/joining.md): doubling algorithms and all-to-all take up to 2.6 times their ideal time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from controller.jobs.collectives import VirtualLink, formulas_of
from controller.jobs.formulas import ALL_TO_ALL, HALVING_DOUBLING_ALL_REDUCE, RECURSIVE_HALVING_REDUCE_SCATTER
from controller.jobs.registry import Job
from controller.jobs.spec import Library

STEPS_WAIT = (HALVING_DOUBLING_ALL_REDUCE, RECURSIVE_HALVING_REDUCE_SCATTER)

ONE_WAY_EACH = (Library.GLOO, Library.NCCL)
"""Libraries that send both ways at once without waiting for each other."""

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
    if job.spec.library not in ONE_WAY_EACH and _exchanges(job.virtual_links):
        return "hosts that send to each other at once may take turns; that depends on the library"
    return ""


def _exchanges(links: Iterable[VirtualLink]) -> bool:
    """Whether two hosts send to each other in one phase."""
    pairs = {(link.phase, link.src_ip, link.dst_ip) for link in links}
    return any((phase, dst, src) in pairs for phase, src, dst in pairs)


def _most_senders(links: Iterable[VirtualLink]) -> int:
    """To one host in one phase."""
    senders: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    for link in links:
        senders[link.phase, link.dst_ip].add(link.src_ip)
    return max(map(len, senders.values()), default=0)
