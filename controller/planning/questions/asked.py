"""Questions about a network that need planning to answer, as plain data.

Made by the control loop from its state, answered by ``answering`` in a process of its own: everything here can be
pickled.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.fabric.topology import Fabric
from controller.jobs.spec import JobId
from controller.planning.problem import PlanLimits, Problem
from controller.planning.questions.single_failures import Kind


@dataclass(frozen=True, slots=True)
class Network:
    """``problem``: with the routes in force. ``intact``: the fabric with the cables that have failed. ``limits``: for
    each plan that an answer takes."""

    problem: Problem
    fabric: Fabric
    intact: Fabric
    limits: PlanLimits


@dataclass(frozen=True, slots=True)
class AboutJob:
    """Is the network what slows the job? ``measured``: its efficiency, None when nobody measured."""

    network: Network
    job_id: JobId
    measured: float | None


@dataclass(frozen=True, slots=True)
class AboutFailures:
    """What would each single failure of these kinds do? ``top``: outcomes wanted, None for all. ``within_s``: seconds
    for all of it."""

    network: Network
    kinds: frozenset[Kind]
    top: int | None
    within_s: float


Question = AboutJob | AboutFailures
