"""Circuits of optical switches in analyses: circuits by name, and the use that a job makes of its circuits. Pure.

In: the fabric, a job's wiring and routes. Out: links that fail together, and sentences and figures for people. A
circuit is a one-way link. The port where it ends sends over another circuit, perhaps to a different server.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from controller.circuits.fibres import Cabling
from controller.circuits.job_wiring import JobWiring
from controller.fabric.parts import NO_REASONS, WhyNot
from controller.fabric.topology import Dpid, Fabric, Link, LinkId, PortRef
from controller.jobs.messages import Arrangement
from controller.planning.analysis.messages import LEAST_BACKGROUND, Arranged, JobAnalysis, Parts
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.problem import Route
from signalbox.errors import cut
from signalbox.live.shown import counted

_DRAINABLE = "only switches and cables between them can be drained"


def circuits_named(names: Collection[str], fabric: Fabric) -> tuple[Parts, ...]:
    """Return the circuits that each name denotes. Names that denote no circuit are left out.

    - ``server2:3``, ``server2:server2-eth3``, ``0x2:3``: both circuits of this interface, out of it and into it.
    - ``server1:2>server7``: only this circuit.
    - ``server1:server7``: all circuits from the first server to the second one."""
    found: defaultdict[str, set[LinkId]] = defaultdict(set)
    for link in fabric.links.values() if names else ():
        if link.one_way:
            for name in _names_of(link, fabric).intersection(names):
                found[name].add(link.id)
    return tuple(Parts(name, frozenset(found[name])) for name in names if name in found)


def no_parts(names: Collection[str], cabling: Cabling, optical: Mapping[Dpid, str], fabric: Fabric) -> WhyNot:
    """Return the reason why an optical part cannot be drained, for each name of such a part.

    Optical parts are optical switches, interfaces of servers at optical switches, and circuits. ``optical``: names of
    the optical switches."""
    if not optical or not names:
        return NO_REASONS
    switches = {name: dpid for dpid, called in optical.items() for name in (called, f"{dpid:#x}")}
    circuits = {each.name for each in circuits_named(frozenset(names), fabric)}
    fibres = {name: fibre for at, fibre in cabling.fibre_of.items() for name in _names_at(at, fabric)}
    found: dict[str, str] = {}
    for name in names:
        shown, fibre = f"'{cut(name)}'", fibres.get(name.partition(">")[0])
        if name in switches:
            _, example = cabling.fibres[switches[name]][0]
            found[name] = (
                f"{shown} is an optical switch: {_DRAINABLE}; signalbox what-if takes interfaces at it, such as "
                f"{fabric.port_name(example)}"
            )
        elif name in circuits:
            found[name] = (
                f"{shown} leads over optical switches: {_DRAINABLE}; signalbox what-if shows the effect of its loss"
            )
        elif fibre:
            found[name] = f"{shown} leads to {optical[fibre.dpid]}, and has no circuit now: {_DRAINABLE}"
    return found


def _names_of(link: Link, fabric: Fabric) -> set[str]:
    src, dst = (_names_at(end, fabric) for end in (link.src, link.dst))
    to = _names_of_switch(link.dst.dpid, fabric)
    between = {f"{switch}:{far}" for switch in _names_of_switch(link.src.dpid, fabric) for far in to}
    return {*src, *dst, *between, *(f"{port}>{far}" for port in src for far in to)}


def _names_at(at: PortRef, fabric: Fabric) -> set[str]:
    switch = fabric.switches.get(at.dpid)
    known = switch.ports.get(at.port) if switch else None
    ports = {str(at.port), known.name if known else str(at.port)}
    return {f"{name}:{port}" for name in _names_of_switch(at.dpid, fabric) for port in ports}


def _names_of_switch(dpid: Dpid, fabric: Fabric) -> set[str]:
    return {fabric.name(dpid), f"{dpid:#x}"}


# ---- sentences about a job that has circuits


@dataclass(frozen=True, slots=True)
class Use:
    """Use that a job makes of its circuits."""

    wiring: JobWiring
    flows: int
    """Number of pinned flows."""
    flows_forwarded: int
    """Number of flows that other servers forward."""
    most_hops: int
    """Largest number of circuits on a flow's path."""
    unusable: int = 0
    """Number of circuits that do not work or are drained."""


def use_of(arrangement: Arrangement, routes: Iterable[Route], usable: Container[LinkId]) -> Use:
    """Return the use that a job makes of its circuits.

    ``routes``: routes of the job's pinned flows. ``usable``: links that work and are not drained."""
    wiring = JobWiring.of(arrangement)
    hops = [max(len(subflow.path) for subflow in route) for route in routes]
    unusable = sum(LinkId(*src) not in usable for src, _ in wiring.circuits)
    return Use(wiring, len(hops), sum(each > 1 for each in hops), max(hops, default=0), unusable)


def arranged(found: JobAnalysis, use: Use) -> Arranged:
    """Return sentences about the job's circuits.

    If the job is limited by its own traffic on the circuits, the result also says why, and what better routes could
    gain."""
    wiring, circuits = use.wiring, counted(len(use.wiring.circuits), "circuit")
    usable = f"{circuits}, of which {use.unusable:,} cannot be used now" if use.unusable else circuits
    on = f"parallelization {wiring.parallelization} on {usable}" if wiring.parallelization else f"on {usable}"
    forwarded = (
        f"other servers forward {use.flows_forwarded:,} of the job's {counted(use.flows, 'pinned flow')}, over at most "
        f"{use.most_hops} circuits"
        if use.flows_forwarded
        else "no server forwards any pinned flow of the job"
    )
    sentences = (
        f"The job runs {on}: {forwarded}.",
        f"By the model an iteration takes {wiring.planned_s:.4g} s, at least {wiring.bound_s:.4g} s with any routes on "
        f"these circuits, and {wiring.other_s:.4g} s on one switch of the same cost.",
    )
    if not _limited_by_own_traffic(found, use):
        return Arranged(sentences)
    relayed = ", and servers forward for each other" if use.flows_forwarded else ""
    at_bound = wiring.planned_s <= wiring.bound_s * (1 + SLOWDOWN_TOLERANCE)
    gain = (
        "Routing can gain nothing: by the model no routes on these circuits make an iteration shorter."
        if at_bound
        else "The planner found no better routes on these circuits. By the model no routes on them make an iteration "
        f"more than {1 - wiring.bound_s / wiring.planned_s:.1%} shorter."
    )
    limits = (
        f"Job '{found.job_id}' is limited by its {circuits}; all of them work, and the fullest circuit carries no "
        f"other traffic. The job's communication takes up to {found.slowdown:.2f} times as long as its hosts' ports "
        f"alone would need, because a circuit leads to one server only{relayed}."
    )
    return Arranged(sentences, limits, gain, link="circuit", at_bound=at_bound)


def _limited_by_own_traffic(found: JobAnalysis, use: Use) -> bool:
    if use.unusable or found.flows_hashed or found.flows_without_a_path:
        return False
    fullest = found.fullest_links[0]
    alone = all(share.job_id == found.job_id for share in fullest.jobs) and fullest.background < LEAST_BACKGROUND
    return found.slowdown > found.nic_slowdown * (1 + SLOWDOWN_TOLERANCE) and alone and not fullest.nic
