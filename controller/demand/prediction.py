"""Check whether the communication time of a job can be predicted from the load of links.

The time can be predicted where hosts send as fast as the links permit. It cannot be predicted where steps wait for each
other, or where a port or a library decides which sender waits (measured on one flat switch, docs/joining.md). It cannot
be predicted either where connections do not share a full link as planned (docs/explanation/simulator.md, "What a sender
gets").
"""

from __future__ import annotations

from controller.jobs.job import Job
from signalbox.jobs.collectives import formulas_of
from signalbox.jobs.formulas import (
    ALL_TO_ALL,
    BINOMIAL_TREE,
    HALVING_DOUBLING_ALL_REDUCE,
    QUATERNARY_TREE,
    RECURSIVE_HALVING_REDUCE_SCATTER,
)
from signalbox.jobs.spec import Library, Striping

STEPS_WAIT = (HALVING_DOUBLING_ALL_REDUCE, RECURSIVE_HALVING_REDUCE_SCATTER)

ONE_WAY_EACH = (Library.GLOO, Library.NCCL)
"""Libraries that send both ways at once without one direction waiting for the other."""

TREES = (BINOMIAL_TREE, QUATERNARY_TREE)

MOST_AT_ONCE = 2
"""Largest number of senders per receiver, and of receivers per sender, for which a prediction is published.

Two rings that overlap have this number."""


def prediction_withheld(job: Job, split: bool = False, outweighed: bool = False) -> str:
    """Return why the slowdown does not predict the efficiency of the job; empty when it does.

    ``split``: whether some of its flows have several subflows. ``outweighed``: whether other jobs have more connections
    per flow on a full link (``planning.efficiency``)."""
    found = formulas_of(job.registration.runs) if job.phases_known else frozenset()
    if found & {*STEPS_WAIT}:
        return "the steps of its halving collectives wait for each other, and the network does not say for how long"
    if found & {*TREES} and len(job.pairs) > 1:
        return "ranks of a tree send to several others at once, in an order that the library chooses"
    links = job.sending
    if (most := links.most_to_one) > (1 if ALL_TO_ALL in found else MOST_AT_ONCE):
        return f"up to {most} hosts send to one host at once; how they share its port is not known"
    if (most := links.most_from_one) > MOST_AT_ONCE:
        return f"one host sends to up to {most} hosts at once; the order is not known"
    if job.spec.library not in ONE_WAY_EACH and links.exchanges:
        return "hosts that send to each other at once may take turns; that depends on the library"
    if split and job.spec.striping is Striping.BY_SHARE:
        return "its flows are split, and connections that are not paced do not keep to their shares of a link"
    if outweighed:
        return "other jobs have more connections per flow on its links, and each connection has the same part of a link"
    return ""
