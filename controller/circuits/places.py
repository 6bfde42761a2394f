"""Translation between ports of the fabric and the positions that identify them in questions and answers about wirings.

Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain, product, starmap

from controller.circuits.cabling import Cabling
from controller.circuits.damage import Damage
from controller.circuits.job_wiring import JobWiring
from controller.circuits.messages import FindWiring, FoundWiring, MendedWiring, MendWiring
from controller.circuits.wiring.circuits import Circuit, Peers
from controller.circuits.wiring.circuits import Port as Place
from controller.fabric.topology import Dpid, LinkId, Path, PortRef
from controller.jobs.job import Job
from controller.planning.problem import Routes, Subflow


def circuits_of(
    asked: FindWiring | MendWiring, peers: tuple[Peers, ...], cabling: Cabling
) -> tuple[tuple[PortRef, PortRef], ...]:
    circuits = []
    for optical, of_optical in zip(asked.optical, peers, strict=True):
        at = [cabling.interface(server, optical) for server in asked.servers]
        for src, peer in zip(at, of_optical, strict=True):
            dst = at[peer] if peer is not None else None
            if src and dst:
                circuits.append((src, dst))
    return tuple(circuits)


def mended_wiring(asked: MendWiring, found: MendedWiring, cabling: Cabling) -> JobWiring:
    """Return the wiring of the job with its new circuits. Its old times stay when some traffic has no path."""
    wiring = replace(asked.wiring, circuits=circuits_of(asked, found.peers, cabling))
    if math.isinf(found.planned_s):
        return wiring
    return replace(wiring, planned_s=found.planned_s, bound_s=found.bound_s)


def routes_of(asked: FindWiring, found: FoundWiring, cabling: Cabling) -> Routes:
    """Return the routes that were found with a wiring, in the planner's form."""
    interfaces = [[cabling.interface(server, optical) for optical in asked.optical] for server in asked.servers]

    def path(places: Iterable[Place]) -> Path:
        at = (interfaces[place.server][place.interface] for place in places)
        return tuple(LinkId(*each) for each in at if each)

    return {
        flow: tuple(Subflow(path(places), share) for places, share in subflows)
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
    """Return the question about the lost circuits of a job. It covers all optical switches where the job has circuits.

    ``servers``: servers of the job. ``unable``: optical switches where no circuit can be made and working circuits
    stay."""
    circuits, fibre_of = damage.wiring.circuits, cabling.fibre_of
    optical = tuple(sorted({fibre_of[src].dpid for src, _ in circuits}))
    # An earlier answer may have left out an interface that still does not work: no circuit may return to it.
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
        damage.wiring,
        servers,
        optical,
        min((interface_bps[at] for circuit in circuits for at in circuit if at in interface_bps), default=math.inf),
        tuple(map(tuple, peers)),
        frozenset(Circuit(place(src), place(dst)) for src, dst in damage.circuits),
        frozenset(map(place, dead)),
        frozenset(number for number, dpid in enumerate(optical) if dpid in unable),
    )
