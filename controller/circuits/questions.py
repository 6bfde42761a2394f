"""Questions about the wirings of jobs, and their answers, for a separate process that makes many plans. Pure.

A question identifies a server by its index in ``servers``, and an optical switch by its index in ``optical``. A
``Place`` is an interface: index of the server, and index of the optical switch. Functions of this module convert
indices into ports of the fabric and back.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain, product, starmap

from controller.circuits.fibres import Cabling
from controller.circuits.job_wiring import Damage, JobWiring
from controller.circuits.wiring.circuits import Circuit, Peers
from controller.circuits.wiring.circuits import Port as Place
from controller.fabric.topology import Dpid, LinkId, Path, PortRef
from controller.jobs.job import Job
from controller.planning.problem import FlowId, PathShare, PlanLimits, Routes
from signalbox.jobs.spec import JobId, JobSpec

PlacedRoutes = Mapping[FlowId, tuple[tuple[tuple[Place, ...], float], ...]]
"""Route of each flow: per subflow the sending interfaces on its path, and its share (0 to 1) of the flow's bytes."""


@dataclass(frozen=True, slots=True)
class Question:
    """Job, and the interfaces that its circuits may use."""

    job_id: JobId
    uid: str
    """Uid of the job's registration."""
    spec: JobSpec
    servers: tuple[Dpid, ...]
    """Servers of the job, ordered by the lowest rank on each server."""
    optical: tuple[Dpid, ...]
    """Optical switches at which each of the servers has an interface."""
    interface_bps: float
    """Smallest rate of the interfaces of the servers that the job uses, in bit/s."""


@dataclass(frozen=True, slots=True)
class FindWiring(Question):
    """Question for the best parallelization of a job, and its circuits."""

    limits: PlanLimits


@dataclass(frozen=True, slots=True)
class FoundWiring:
    """Answer to ``FindWiring``. Times are as in ``JobWiring``."""

    parallelization: str
    runs: JobSpec
    """Spec of the job as it runs on the circuits, with the chosen rings."""
    peers: tuple[Peers, ...]
    """Receiving server: ``peers[k][i]`` is that of server i at optical switch k, or None without a circuit."""
    planned_s: float
    bound_s: float
    other_s: float
    refused: str = ""
    """Reason why the job should not run on circuits; empty if it should."""
    routes: PlacedRoutes = field(default_factory=dict)
    """Routes on which an iteration takes ``planned_s``. Some flows may be missing."""


@dataclass(frozen=True, slots=True)
class MendWiring(Question):
    """Question for circuits that replace lost circuits of a job."""

    wiring: JobWiring
    peers: tuple[Peers, ...]
    """``peers`` of the job's wiring (``FoundWiring``)."""
    lost: frozenset[Circuit]
    """Circuits of the wiring that do not work although both interfaces do."""
    dead: frozenset[Place]
    """Interfaces that do not work."""
    fixed: frozenset[int]
    """Optical switches at which no circuit can be made."""


@dataclass(frozen=True, slots=True)
class MendedWiring:
    """Answer to ``MendWiring``. Fields are as in ``FoundWiring``. Times are ``inf`` if some traffic has no path."""

    peers: tuple[Peers, ...]
    planned_s: float
    bound_s: float


# ---- translation between positions and ports


def circuits_of(asked: Question, peers: tuple[Peers, ...], cabling: Cabling) -> tuple[tuple[PortRef, PortRef], ...]:
    circuits = []
    for optical, of_optical in zip(asked.optical, peers, strict=True):
        at = [cabling.interface(server, optical) for server in asked.servers]
        for src, peer in zip(at, of_optical, strict=True):
            dst = at[peer] if peer is not None else None
            if src and dst:
                circuits.append((src, dst))
    return tuple(circuits)


def mended_wiring(asked: MendWiring, found: MendedWiring, cabling: Cabling) -> JobWiring:
    """Return the wiring of the job with its new circuits, and with its old times if some traffic has no path."""
    wiring = replace(asked.wiring, circuits=circuits_of(asked, found.peers, cabling))
    if math.isinf(found.planned_s):
        return wiring
    return replace(wiring, planned_s=found.planned_s, bound_s=found.bound_s)


def routes_of(asked: FindWiring, found: FoundWiring, cabling: Cabling) -> Routes:
    """Return the routes that were found with a wiring, as paths over links of the fabric."""
    interfaces = [[cabling.interface(server, optical) for optical in asked.optical] for server in asked.servers]

    def path(places: Iterable[Place]) -> Path:
        at = (interfaces[place.server][place.interface] for place in places)
        return tuple(LinkId(*each) for each in at if each)

    return {
        flow: tuple(PathShare(path(places), share) for places, share in subflows)
        for flow, subflows in found.routes.items()
    }


def mending(
    job: Job,
    damage: Damage,
    servers: tuple[Dpid, ...],
    interface_bps: Mapping[PortRef, float],
    cabling: Cabling,
    unable: Collection[Dpid],
) -> MendWiring:
    """Return the question about a job's lost circuits, for all optical switches at which the job has circuits.

    ``servers``: servers of the job. ``unable``: optical switches at which no circuit can be made, but working circuits
    stay."""
    circuits, fibre_of = damage.wiring.circuits, cabling.fibre_of
    optical = tuple(sorted({fibre_of[src].dpid for src, _ in circuits}))
    # An earlier answer may have avoided an interface that still does not work: no new circuit may use it either.
    used = frozenset(chain.from_iterable(circuits))
    idle = frozenset(filter(None, starmap(cabling.interface, product(servers, optical)))) - used
    dead = damage.interfaces | idle.difference(interface_bps)
    number = {dpid: n for n, dpid in enumerate(servers)}

    def place(at: PortRef) -> Place:
        return Place(number[at.dpid], optical.index(fibre_of[at].dpid))

    peers: list[list[int | None]] = [[None] * len(servers) for _ in optical]
    for src, dst in circuits:
        peers[place(src).interface][place(src).server] = number[dst.dpid]
    return MendWiring(
        job.id,
        job.uid,
        job.spec,
        servers,
        optical,
        min((interface_bps[at] for circuit in circuits for at in circuit if at in interface_bps), default=math.inf),
        damage.wiring,
        tuple(map(tuple, peers)),
        frozenset(Circuit(place(src), place(dst)) for src, dst in damage.circuits),
        frozenset(map(place, dead)),
        frozenset(number for number, dpid in enumerate(optical) if dpid in unable),
    )


def prepare() -> None:
    """Import the modules that only the answering process needs, before the first question."""
    import_module("controller.circuits.answers")


def answer(asked: FindWiring | MendWiring) -> FoundWiring | MendedWiring:
    """Return the answer to a question. Raises ``SignalboxError`` if the planner finds no plan."""
    from controller.circuits.answers import find_wiring, mend_wiring

    return find_wiring(asked) if isinstance(asked, FindWiring) else mend_wiring(asked)
