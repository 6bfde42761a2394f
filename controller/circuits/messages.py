"""Questions about the wiring (the circuits) of a job, and their answers.

Another process computes the answers, because each answer needs many plans.

A server is identified by its position in the question's ``servers``, and an optical switch by its position in
``optical``. An interface has the number of its optical switch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.circuits.job_wiring import JobWiring
from controller.circuits.wiring.circuits import Circuit, Peers, Port
from controller.fabric.topology import Dpid
from controller.planning.problem import FlowId, PlanLimits
from signalbox.jobs.spec import JobId, JobSpec

PlacedRoutes = Mapping[FlowId, tuple[tuple[tuple[Port, ...], float], ...]]
"""Route of each flow: per subflow the sending interfaces on its path, and its share (0 to 1) of the flow's bytes."""


@dataclass(frozen=True, slots=True)
class FindWiring:
    """Question for the best parallelization of a job, and its circuits."""

    job_id: JobId
    uid: str
    """Id of the registration."""
    spec: JobSpec
    servers: tuple[Dpid, ...]
    """Servers of the job's addresses, in the order in which ranks name them."""
    optical: tuple[Dpid, ...]
    """Optical switches at which each of the servers has an interface."""
    interface_bps: float
    """Rate of these interfaces in bit/s."""
    limits: PlanLimits


@dataclass(frozen=True, slots=True)
class FoundWiring:
    """Answer to ``FindWiring``. Times are as in ``JobWiring``."""

    parallelization: str
    runs: JobSpec
    """Spec of the job as it runs on the circuits, with the chosen rings."""
    peers: tuple[Peers, ...]
    """Receiving server, by optical switch and then by sending server; None where there is no circuit."""
    planned_s: float
    bound_s: float
    other_s: float
    refused: str = ""
    """Reason why the job should not run on circuits; empty when it should."""
    routes: PlacedRoutes = field(default_factory=dict)
    """Routes on which an iteration takes ``planned_s``; some flows may be missing."""


@dataclass(frozen=True, slots=True)
class MendWiring:
    """Question for circuits in place of the lost circuits of a job. Undescribed fields are as in ``FindWiring``."""

    job_id: JobId
    uid: str
    spec: JobSpec
    wiring: JobWiring
    servers: tuple[Dpid, ...]
    optical: tuple[Dpid, ...]
    interface_bps: float
    peers: tuple[Peers, ...]
    """Peers of the job's wiring."""
    lost: frozenset[Circuit]
    """Circuits of the wiring that do not work although both interfaces do."""
    dead: frozenset[Port]
    """Interfaces that do not work."""
    fixed: frozenset[int]
    """Optical switches at which no circuit can be made."""


@dataclass(frozen=True, slots=True)
class MendedWiring:
    """Answer to ``MendWiring``. Fields are as in ``FoundWiring``; times are ``inf`` when some traffic has no path."""

    peers: tuple[Peers, ...]
    planned_s: float
    bound_s: float
