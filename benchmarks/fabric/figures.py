"""Figures from captured messages: when a fabric was complete, and how long an install and each repair took.

A *next hop* is an output port on a shortest path to a destination. A *pin* is a rule that sends one flow to a group. A
*mod* is a flow-mod, group-mod or meter-mod. A mod is *confirmed* when the reply to the barrier after it arrives.

The functions are pure. They compare ``Observed`` with the correct next hops. ``Figures`` has everything that a run
found, ``TARGETS`` the limits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from benchmarks.fabric.blueprint import Cable, Hops
from benchmarks.fabric.observed import Change, FlowId, Observed
from benchmarks.measures import Spread
from benchmarks.openflow_bytes import FlowChange, GroupChange
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.tables.rules import Table


def missing_hops(
    observed: Observed, expected: Hops, switch_of_address: Mapping[int, Dpid]
) -> dict[tuple[Dpid, Dpid], list[PortNo]]:
    """Return the next hops that no rule uses yet, by (switch, destination); keys without any are left out."""
    used = observed.ports_towards(switch_of_address)
    return {key: sorted(ports - used[key]) for key, ports in expected.items() if not ports <= used[key]}


def links_in_use(observed: Observed, ends: Iterable[PortRef]) -> int:
    """Return the number of directed links that some group sends to. ``ends``: sending ports of all links."""
    used = {
        (dpid, port) for dpid, switch in observed.switches.items() for g in switch.groups.values() for port in g.ports
    }
    return sum(at in used for at in ends)


def shrunk(changes: Iterable[Change]) -> int:
    """Return the number of group-mods that take a next hop from a group, or delete a group that has next hops."""
    count = 0
    for change in changes:
        if isinstance(change.what, GroupChange) and isinstance(change.before, GroupChange):
            count += bool(set(change.before.ports) - set(change.what.ports))
    return count


def install_s(changes: Sequence[Change]) -> float | None:
    """Return the seconds from the first mod until all mods are confirmed; None before, or without mods."""
    confirmed = [change.confirmed for change in changes if change.confirmed is not None]
    if not changes or len(confirmed) < len(changes):
        return None
    return max(confirmed) - min(change.sent for change in changes)


@dataclass(frozen=True)
class Dead:
    """Rules that send to a cut cable.

    ``groups``: lost next hops of each group that uses any, by (switch, group id). ``pins``: pins that lead to such
    groups."""

    groups: Mapping[tuple[Dpid, int], frozenset[PortNo]]
    pins: frozenset[tuple[Dpid, FlowId]]

    @classmethod
    def of(
        cls,
        observed: Observed,
        lost: Iterable[tuple[Dpid, Dpid, PortNo]],
        switch_of_address: Mapping[int, Dpid],
    ) -> Dead:
        """Return the rules that use lost next hops now.

        ``lost``: (switch, destination, port), see ``blueprint.lost_hops``."""
        gone: dict[Dpid, dict[Dpid, set[PortNo]]] = {}
        for dpid, destination, port in lost:
            gone.setdefault(dpid, {}).setdefault(destination, set()).add(port)
        groups: dict[tuple[Dpid, int], frozenset[PortNo]] = {}
        for dpid, towards in gone.items():
            for destination, group_id, group in observed.switches[dpid].uses(switch_of_address):
                dead = towards.get(destination, set()) & set(group.ports)
                if dead:
                    groups[dpid, group_id] = frozenset(map(PortNo, dead))
        pins = frozenset(
            (dpid, key)
            for dpid in gone
            for key, flow in observed.switches[dpid].flows.items()
            if key.table == Table.PINNED and any((dpid, group_id) in groups for group_id in flow.groups)
        )
        return cls(groups, pins)


class Removal(NamedTuple):
    """Times at which the last group-mod of a repair was sent, and was confirmed."""

    sent: float
    confirmed: float


def hops_removed(dead: Dead, changes: Iterable[Change]) -> Removal | None:
    """Return when the last dead group stopped using lost next hops; None until all have, with confirmation."""
    groups = dict(dead.groups)
    removals: list[Removal] = []
    for change in changes:
        if isinstance(change.what, GroupChange) and change.confirmed is not None:
            gone = groups.get((change.dpid, change.what.group_id))
            if gone is not None and not gone & set(change.what.ports):
                del groups[change.dpid, change.what.group_id]
                removals.append(Removal(change.sent, change.confirmed))
    return Removal(*map(max, zip(*removals, strict=True))) if removals and not groups else None


def moved(dead: Dead, changes: Iterable[Change]) -> float | None:
    """Return when the last dead pin was confirmed on another path.

    The result is None if there are no dead pins, or while a dead pin has not moved."""
    pins = set(dead.pins)
    at: float | None = None
    for change in changes:
        if isinstance(change.what, FlowChange) and change.confirmed is not None:
            pin = (change.dpid, FlowId(change.what.table, change.what.priority, change.what.match))
            if pin in pins and not any((change.dpid, group_id) in dead.groups for group_id in change.what.groups):
                pins.discard(pin)
                at = max(at or change.confirmed, change.confirmed)
    return None if pins else at


class Repair(NamedTuple):
    """Times of the repair after a cut, in seconds."""

    sent_s: float
    """Time from the first port-status until the last group-mod of the repair was sent."""
    groups_s: float
    """Time from the first port-status until the last group-mod of the repair was confirmed."""
    routes_s: float | None
    """Time from the first port-status until the last pin was moved; None if no pin had to move, or a pin has not."""


def repair(dead: Dead, cuts: Collection[Cable], observed: Observed, from_port: int, from_change: int) -> Repair | None:
    """Return the times of the repair after ``cuts``; None until no group uses a lost next hop any more.

    ``from_port``, ``from_change``: how many port-statuses and changes had been observed before the cut."""
    ends = {end for cable in cuts for end in cable}
    seen = [status.at for status in observed.ports[from_port:] if status.deleted and (status.dpid, status.port) in ends]
    changes = observed.changes[from_change:]
    removal = hops_removed(dead, changes)
    if not seen or removal is None:
        return None
    first, routes_at = min(seen), moved(dead, changes)
    return Repair(removal.sent - first, removal.confirmed - first, None if routes_at is None else routes_at - first)


# ---- figures of a run

REPAIRS = ("repair_ms", "controller_repair_ms", "repair_routes_ms")
SPREADS = ("echo_ms", *REPAIRS)


@dataclass(slots=True)
class Figures:
    """Figures of a run, in the order of its steps; None for a step that failed.

    Times are in seconds or, if so named, ms."""

    switches: int
    links_expected: int
    links_found: int | None = None
    """Number of directed links that some group of the sending switch sends to."""
    build_s: float | None = None
    discovery_s: float | None = None
    """Time from the last switch's features reply until groups with all next hops are confirmed."""
    pins: int | None = None
    """Number of pins on all switches together."""
    flows: int | None = None
    """Number of virtual links (pairs of ranks with traffic) of all jobs."""
    install_s: float | None = None
    """Time from the first mod after the registration of all jobs until the last mod is confirmed."""
    idle_cpu_percent: float | None = None
    """CPU time of the controller and its children while only counters and probes are sent, in percent of a core."""
    false_link_downs: int | None = None
    """Links reported down although all are up, during planning.

    The larger of two numbers: decreases of the number of links in the API, and group-mods that take away a next hop."""
    quiet_s: float | None = None
    """Duration of the step that plans again and again, and looks for false link-downs and late echoes."""
    plans: int | None = None
    echo_ms: Spread | None = None
    """Time until an echo request is answered. A spare switch without ports sends one every 10 ms during planning."""
    silent_loss_detect_s: float | None = None
    """Time from dropping LLDP in one direction of three cables until their removal from groups is confirmed."""
    reconnect_resync_s: float | None = None
    """Time from making all switches reconnect until the API reports all links, and all switches in sync."""
    reconnect_rules_rewritten: int | None = None
    restart_s: float | None = None
    """Time from the start after a SIGKILL until the API reports all links, and all switches in sync."""
    rules_rewritten_on_restart: int | None = None
    """Number of mods from the restart until ``--settled-s`` after the controller has adopted the old rules."""
    switches_changed_on_restart: int | None = None
    """Number of switches whose flows or groups differ from those before the restart."""
    cuts: int | None = None
    repair_ms: Spread | None = None
    """Time from the first port-status of a cut until the removal of lost next hops from all groups is confirmed.

    Only switches with another shortest path count."""
    controller_repair_ms: Spread | None = None
    """Time from the first port-status of a cut until the last group-mod of the repair is sent."""
    repair_routes_ms: Spread | None = None
    """Time from the first port-status of a cut until each pin that used the cable is confirmed on another path."""
    rss_mb: float | None = None
    """Resident memory of all processes of the controller in MB: the largest of three samples.

    They are taken after the steps "idle", "planning" and "repairs"."""
    errors: int | None = None
    packets_lost: int | None = None
    """Number of packets that the capture could not record."""
    repairs: list[dict[str, float | None]] = field(default_factory=list)
    machine: dict[str, str | int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        return asdict(self)


def rows(found: Figures) -> Iterator[tuple[str, float | None]]:
    """Yield each figure by name, and in place of a ``Spread`` its percentiles."""
    for name, value in found.data().items():
        if name in SPREADS:
            for part in ("p50", "p99", "max"):
                yield f"{name} {part}", value[part] if value else None
        elif name not in ("machine", "problems", "repairs"):
            yield name, value


TARGETS = {
    "discovery_s": 5,
    "install_s": 1,
    "idle_cpu_percent": 10,
    "false_link_downs": 0,
    "echo_ms p99": 50,
    "silent_loss_detect_s": 15,
    "rules_rewritten_on_restart": 0,
    "repair_ms p50": 30,
    "repair_ms p99": 100,
    "controller_repair_ms p50": 30,
    "controller_repair_ms p99": 100,
    "rss_mb": 300,
}
"""Limit of each figure for 64 leaves and 32 spines on two cores. A smaller fabric should stay well below."""
