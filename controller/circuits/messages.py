"""Questions about wirings, and their answers. The answer is made elsewhere (``design``): it takes
many plans.

Servers and optical switches are named by their places in the question's ``servers`` and ``optical``, interfaces by
those of their optical switches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.circuits.job_wiring import JobWiring
from controller.circuits.wiring.circuits import Circuit, Peers, Port
from controller.fabric.topology import Dpid
from controller.planning.problem import FlowId, PlanLimits
from signalbox.jobs.spec import JobId, JobSpec

PlacedRoutes = Mapping[FlowId, tuple[tuple[tuple[Port, ...], float], ...]]
"""Of flows the pieces: the interfaces that send, and the share of its bytes."""


@dataclass(frozen=True, slots=True)
class FindWiring:
    """Which strategy of the job is best on which circuits. ``uid``: of the registration. ``servers``: that its
    addresses are at, in the order in which ranks name them. ``optical``: the optical switches that each of the servers
    has an interface at, of ``interface_bps``."""

    job_id: JobId
    uid: str
    spec: JobSpec
    servers: tuple[Dpid, ...]
    optical: tuple[Dpid, ...]
    interface_bps: float
    limits: PlanLimits


@dataclass(frozen=True, slots=True)
class FoundWiring:
    """``runs``: what the job sends, with the rings that were chosen. ``peers``: by optical switch and server the server
    that receives. ``routes``: on which the job takes ``planned_s``; may lack some. Seconds as in ``JobWiring``.
    ``refused``: why the job should not be here; empty where it should."""

    strategy: str
    runs: JobSpec
    peers: tuple[Peers, ...]
    planned_s: float
    bound_s: float
    other_s: float
    refused: str = ""
    routes: PlacedRoutes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MendWiring:
    """What a job that has lost circuits should have in place of them. ``peers``: its wiring. ``lost``: of that what
    does not work although both interfaces do; ``dead``: interfaces that do not. ``fixed``: optical switches at
    which nothing can be made. Else as ``FindWiring``."""

    job_id: JobId
    uid: str
    spec: JobSpec
    wiring: JobWiring
    servers: tuple[Dpid, ...]
    optical: tuple[Dpid, ...]
    interface_bps: float
    peers: tuple[Peers, ...]
    lost: frozenset[Circuit]
    dead: frozenset[Port]
    fixed: frozenset[int]


@dataclass(frozen=True, slots=True)
class MendedWiring:
    """As in ``FoundWiring``; ``inf`` where something cannot be sent any more."""

    peers: tuple[Peers, ...]
    planned_s: float
    bound_s: float
