"""Circuits of optical switches, as the analyses see them: which of them a name means, and how a job uses those that it
has.

In: the fabric, a job's wiring and routes. Out: links that fail together, and figures for people. A circuit is a link
one way: what its far end sends from the same port is another circuit. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from controller.circuits.cabling import Cabling
from controller.circuits.job_wiring import JobWiring
from controller.fabric.parts import NO_REASONS, WhyNot
from controller.fabric.topology import Dpid, Fabric, Link, LinkId, PortRef
from controller.jobs.messages import Arrangement
from controller.planning.analysis.requests import Parts
from controller.planning.analysis.results import LEAST_BACKGROUND, Arranged, JobAnalysis
from controller.planning.efficiency import LEVEL_TOLERANCE
from controller.planning.problem import Route
from signalbox.errors import cut
from signalbox.live.shown import counted

_DRAINABLE = "only switches and cables between them can be drained"


def circuits_named(names: Collection[str], fabric: Fabric) -> tuple[Parts, ...]:
    """Of the names those that mean circuits. ``server2:3``: both that the fibre pair of this interface carries, out of
    it and into it, and ``server2:server2-eth3`` and ``0x2:3`` the same; ``server1:2>server7``: this one alone;
    ``server1:server7``: all from the one to the other."""
    found: defaultdict[str, set[LinkId]] = defaultdict(set)
    for link in fabric.links.values() if names else ():
        if link.one_way:
            for name in _names_of(link, fabric).intersection(names):
                found[name].add(link.id)
    return tuple(Parts(name, frozenset(found[name])) for name in names if name in found)


def no_parts(names: Collection[str], cabling: Cabling, optical: Mapping[Dpid, str], fabric: Fabric) -> WhyNot:
    """Of names that mean an optical switch, an interface at one, or circuits: why these cannot be drained. ``optical``:
    what the optical switches are called."""
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
                f"{fabric.name(example.dpid)}:{example.port}"
            )
        elif name in circuits:
            found[name] = (
                f"{shown} leads over optical switches: {_DRAINABLE}; signalbox what-if says what its loss does"
            )
        elif fibre:
            found[name] = f"{shown} leads to {optical[fibre.dpid]}, and is no circuit now: {_DRAINABLE}"
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


# ---- what is said of a job that has circuits


@dataclass(frozen=True, slots=True)
class Use:
    """How a job uses its ``circuits``. ``strategy``: empty for a job without. ``flows``: those that are pinned; other
    servers forward ``flows_forwarded`` of them, over at most ``most_hops`` circuits. Seconds of an iteration by the
    model: ``iteration_s`` on the routes that were found, ``bound_s`` that no routes on these circuits are below,
    ``alternative_s`` on one switch of the same cost. ``unusable``: circuits that do not work, or are drained."""

    strategy: str
    circuits: int
    flows: int
    flows_forwarded: int
    most_hops: int
    iteration_s: float
    bound_s: float
    alternative_s: float
    unusable: int = 0


def use_of(arrangement: Arrangement, routes: Iterable[Route], usable: Container[LinkId]) -> Use:
    """``routes``: of the job's flows that are pinned. ``usable``: links that may be used."""
    wiring = JobWiring.of(arrangement)
    hops = [max(len(piece.path) for piece in route) for route in routes]
    return Use(
        strategy=wiring.strategy,
        circuits=len(wiring.circuits),
        flows=len(hops),
        flows_forwarded=sum(each > 1 for each in hops),
        most_hops=max(hops, default=0),
        iteration_s=wiring.planned_s,
        bound_s=wiring.bound_s,
        alternative_s=wiring.other_s,
        unusable=sum(LinkId(*src) not in usable for src, _ in wiring.circuits),
    )


def arranged(found: JobAnalysis, use: Use) -> Arranged:
    """What is said of the job: on which circuits it runs, and whether it should be elsewhere."""
    circuits = counted(use.circuits, "circuit")
    usable = f"{circuits}, of which {use.unusable:,} cannot be used now" if use.unusable else circuits
    strategy = f"strategy {use.strategy} on {usable}" if use.strategy else f"on {usable}"
    forwarded = (
        f"other servers forward {use.flows_forwarded:,} of its {counted(use.flows, 'pinned flow')}, over at most "
        f"{use.most_hops} circuits"
        if use.flows_forwarded
        else "no server forwards any of its pinned flows"
    )
    sentences = (
        f"It runs {strategy}: {forwarded}.",
        f"By the model an iteration takes {use.iteration_s:.4g} s, no less than {use.bound_s:.4g} s with any routes on "
        f"these circuits, and {use.alternative_s:.4g} s on one switch of the same cost.",
    )
    if not _limited(found, use):
        return Arranged(sentences)
    relayed = ", and servers forward for each other" if use.flows_forwarded else ""
    at_bound = use.iteration_s <= use.bound_s * (1 + LEVEL_TOLERANCE)
    gain = (
        "Routing can gain nothing: by the model no routes on these circuits make an iteration shorter."
        if at_bound
        else "The planner found no better routes on these circuits. By the model no routes on them make an iteration "
        f"more than {1 - use.bound_s / use.iteration_s:.1%} shorter."
    )
    limits = (
        f"{found.job_id} is limited by its {circuits}; all of them work, and nothing else is on the fullest. Its "
        f"communication takes up to {found.level:.2f} times as long as its hosts' ports alone would need, because a "
        f"circuit leads to one server only{relayed}."
    )
    return Arranged(sentences, limits, gain, link="circuit", at_bound=at_bound)


def _limited(found: JobAnalysis, use: Use) -> bool:
    """Return whether only what it sends over its circuits makes its level: all of them work, its flows are pinned, and
    nothing else is on its fullest links."""
    if use.unusable or found.flows_hashed or found.flows_without_a_path:
        return False
    fullest = found.fullest_links[0]
    alone = all(share.job_id == found.job_id for share in fullest.jobs) and fullest.background < LEAST_BACKGROUND
    return found.level > found.nic_level * (1 + LEVEL_TOLERANCE) and alone and not fullest.nic
