"""Figures from the observed messages: when a fabric was complete, and how long an install and each repair took.

The functions are pure. Their input is ``Observed`` and the next hops of correct switches. Their results are seconds,
counts and percentiles. ``Figures`` has everything that a run found, ``TARGETS`` the targets.
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
    """Return the ports on shortest paths that no rule uses yet, for each (switch, destination) that has some."""
    used = observed.ports_towards(switch_of_address)
    return {key: sorted(ports - used[key]) for key, ports in expected.items() if not ports <= used[key]}


def links_in_use(observed: Observed, ends: Iterable[PortRef]) -> int:
    """Return the number of directed links to which some group of the sending switch outputs.

    ``ends``: sending ports of all links."""
    used = {
        (dpid, port) for dpid, switch in observed.switches.items() for g in switch.groups.values() for port in g.ports
    }
    return sum(at in used for at in ends)


def shrunk(changes: Iterable[Change]) -> int:
    """Return the number of group-mods that remove a next hop, or delete a whole group that has next hops."""
    count = 0
    for change in changes:
        if isinstance(change.what, GroupChange) and isinstance(change.before, GroupChange):
            count += bool(set(change.before.ports) - set(change.what.ports))
    return count


class Install(NamedTuple):
    """Times of an install: ``first`` change sent, ``last`` change confirmed (None while a barrier is open)."""

    first: float
    last: float | None
    changes: int


def install(changes: Sequence[Change]) -> Install | None:
    """Return the times of the install that made ``changes``; None without changes."""
    if not changes:
        return None
    confirmed = [change.confirmed for change in changes]
    last = None if None in confirmed else max(time for time in confirmed if time is not None)
    return Install(min(change.sent for change in changes), last, len(changes))


@dataclass(frozen=True)
class Dead:
    """Rules that use cut cables: groups with lost next hops, and pins to these groups."""

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
    """Times at which the last group-mod that removed lost next hops was sent and confirmed."""

    sent: float
    confirmed: float


def hops_removed(dead: Dead, changes: Iterable[Change]) -> Removal | None:
    """Return when the last group stopped using lost next hops; None until all its changes are confirmed."""
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
    """Return the time at which the last pin that led to a lost next hop was confirmed on another path.

    The result is None when there are no such pins, or while one of them has not moved."""
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
    """Times of the repair after a cut."""

    seen: float
    """Time at which the controller received the first port-status."""
    sent_s: float
    """Seconds from ``seen`` until the last group-mod was sent (``hops_removed``)."""
    groups_s: float
    """Seconds from ``seen`` until the last group-mod was confirmed (``hops_removed``)."""
    routes_s: float | None
    """Seconds from ``seen`` until the last pin was moved; None when ``moved`` returns None."""


def repair(dead: Dead, cuts: Collection[Cable], observed: Observed, from_port: int, from_change: int) -> Repair | None:
    """Return the repair after the cables ``cuts`` were cut; None while some group still uses a lost next hop.

    ``from_port``, ``from_change``: numbers of port-statuses and of changes that were observed before the cut."""
    ends = {end for cable in cuts for end in cable}
    seen = [status.at for status in observed.ports[from_port:] if status.deleted and (status.dpid, status.port) in ends]
    changes = observed.changes[from_change:]
    removal = hops_removed(dead, changes)
    if not seen or removal is None:
        return None
    first, routes_at = min(seen), moved(dead, changes)
    return Repair(
        first, removal.sent - first, removal.confirmed - first, None if routes_at is None else routes_at - first
    )


# ---- figures of a run

REPAIRS = ("repair_ms", "controller_repair_ms", "reconfigured_ms", "repair_routes_ms")
SPREADS = ("echo_ms", *REPAIRS)


@dataclass(slots=True)
class Figures:
    """Figures of a run in the order of its steps; None for steps that were not completed.

    Times are in seconds unless the name says milliseconds. A change is *confirmed* when the reply to the barrier after
    it has arrived.
    """

    switches: int
    links_expected: int
    links_found: int | None = None
    """Number of directed links to which some group of the sending switch outputs."""
    build_s: float | None = None
    discovery_s: float | None = None
    """Time from the last switch's features until all groups hold all next hops of shortest paths, confirmed."""
    discovery_from_start_s: float | None = None
    """Time from the start of the controller's process to the end of ``discovery_s``."""
    links_reported_s: float | None = None
    """Time from the last switch's features until the API reports all links, and all switches in sync."""
    pins: int | None = None
    """Number of entries of the pinned table that lead to a group."""
    flows: int | None = None
    """Number of virtual links of all jobs."""
    install_s: float | None = None
    """Time from the first flow-mod or group-mod after all jobs were registered until the last mod is confirmed."""
    install_from_call_s: float | None = None
    """Time from the first call that registers a job to the end of ``install_s``."""
    install_changes: int | None = None
    """Number of mods of all kinds that the controller sent for the install."""
    idle_cpu_percent: float | None = None
    """User and system time of the controller and its children, in percent of one core."""
    observer_cpu_percent: float | None = None
    """User and system time of the process that captures packets, in percent of one core."""
    false_link_downs: int | None = None
    """Decreases of the number of links in the API, or group-mods that remove a next hop: the larger number."""
    quiet_s: float | None = None
    """Duration of repeated planning, during which false link-downs are counted and echoes are timed."""
    plans: int | None = None
    echo_ms: Spread | None = None
    """Time until the controller answers an echo request; an additional switch without ports sends one every 10 ms."""
    silent_loss_detect_s: float | None = None
    """Time from dropping LLDP in one direction of three cables until switches confirm that no group uses them."""
    silent_loss_return_s: float | None = None
    """Time from removing the rules that drop LLDP until groups use all next hops again."""
    reconnect_resync_s: float | None = None
    """Time from making all switches reconnect until the API reports all links, and all switches in sync."""
    reconnect_rules_rewritten: int | None = None
    restart_s: float | None = None
    """Time from the start after a SIGKILL until the API reports all links, and all switches in sync."""
    rules_rewritten_on_restart: int | None = None
    """Mods of all kinds from the start until ``--settled-s`` after the end of adoption."""
    switches_changed_on_restart: int | None = None
    """Number of switches whose dumped flows or groups before and after the restart differ."""
    cuts: int | None = None
    repair_ms: Spread | None = None
    """Time from a cut's first port-status until all switches with another path confirm groups without lost hops."""
    controller_repair_ms: Spread | None = None
    """Time from the first port-status of a cut until the controller sends the last group-mod of the repair."""
    reconfigured_ms: Spread | None = None
    """Time from the first port-status of a cut until ovs-vsctl returns.

    Open vSwitch reads no message while it examines its bridges."""
    repair_routes_ms: Spread | None = None
    """Time from the first port-status of a cut until each pin whose path was cut is confirmed on another path."""
    routes_repaired: int | None = None
    """Number of cuts that interrupted the path of a pin."""
    replug_s: float | None = None
    """Time from plugging in all cut cables at once until all next hops are used again."""
    rss_mb: float | None = None
    """Resident memory of all processes of the controller, the largest of samples after idling, planning and repairs."""
    rss_peak_mb: float | None = None
    """Sum of the peak resident memory of each process."""
    processes: int | None = None
    errors: int | None = None
    """Number of OpenFlow errors that switches sent."""
    packets_lost: int | None = None
    """Number of packets that the capture could not record."""
    repairs: list[dict[str, float | None]] = field(default_factory=list)
    machine: dict[str, str | int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return asdict(self)


def rows(found: Figures) -> Iterator[tuple[str, float | None]]:
    """Yield every figure and every percentile by name."""
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
"""Largest allowed value by name of the row, for 64 leaves and 32 spines on two cores.

The values of a smaller fabric should be well below these limits."""
