"""Conversion of the southbound's reports into snapshots of the ``Fabric``. ``now`` is monotonic seconds.

A cable is used when LLDP has arrived in both directions, both ports are up and both switches have confirmed their
rules. After a failure of the cable, its hold-down must be over too. A *one-way port* sends into a fibre to an optical
switch. The link of a one-way port is used when the extension allows the link (``core.messages``) and LLDP has arrived
over it. Such a link has no hold-down. A host stays at the port where it was last seen.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeVar

from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, Port, PortNo, PortRef, Switch
from controller.shared_map import subtract

Key = TypeVar("Key")
Value = TypeVar("Value")
MAX_HOSTS_PER_PORT = 64
MAX_HOSTS_PER_SWITCH = 1024
MAX_HOSTS = 1 << 14
"""Largest number of hosts that packets, and rules on switches, can add: per port, per switch and in all.

A host outside its leaf's prefix takes a rule on every switch. Without a limit, a switch that invents hosts could fill
the tables of all other switches. A new host costs 10 to 30 µs of processor time for each host of its switch. Declared
hosts do not count, and hosts that jobs name are added beyond ``MAX_HOSTS``."""

Cable = frozenset[PortRef]
FORGIVEN_AFTER = 4
"""Time for which a cable must work to get the shortest hold-down again, as a multiple of its last hold-down."""


@dataclass(frozen=True, slots=True)
class TopologySettings:
    """Settings of the topology."""

    hold_down_s: tuple[float, float]
    """First and longest hold-down in seconds."""
    edge_after_s: float
    """Seconds for which a port must be up without LLDP until it counts as an edge port, where hosts may be."""
    capacity_bps: Callable[[Switch, Port, bool], float]
    """Capacity in bit/s, each way, by switch, port, and whether a host is connected to the port."""
    one_way: frozenset[PortRef] = frozenset()
    """Ports whose links lead one way, and are used only if ``TopologyState.allow`` permits them."""


def _frozen(current: dict[Key, Value], before: Mapping[Key, Value]) -> Mapping[Key, Value]:
    """Return an immutable copy, or ``before`` when nothing has changed."""
    return before if before == current else MappingProxyType(dict(current))


@dataclass(frozen=True, slots=True)
class DeclaredHost:
    """A host of the inventory file, with the names of its switch and port."""

    ip: str
    mac: str | None
    switch: str
    port: str


Learned = Literal["new", "known", "moved", "contested", "refused", "ignored"]


@dataclass(slots=True)
class _Held:
    hold_s: float
    until: float
    """End of the hold-down in monotonic seconds; infinite until the cable returns.

    Minus infinity means that the hold-down is over and the cable may be used."""
    free_since: float = math.inf


MOST_HELD = 1 << 14
"""Largest number of cables with a hold-down; the oldest hold-down makes room, because a switch can invent cables."""


class HoldDowns:
    """Hold-downs of cables: the times for which cables that failed and returned are not used yet.

    Each hold-down of a cable is twice as long as the last, until the cable has worked for a while. A flapping cable
    would otherwise move the same flows again and again. ``first_s``: hold-down after the first failure. ``longest_s``:
    longest hold-down."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = max(first_s, longest_s)
        self._cables: dict[Cable, _Held] = {}

    def failed(self, cable: Cable, now: float) -> None:
        known = self._cables.get(cable)
        hold_s = self._first_s
        if known and now < known.free_since + FORGIVEN_AFTER * known.hold_s:
            hold_s = max(self._first_s, min(2 * known.hold_s, self._longest_s))
        if known is None and len(self._cables) >= MOST_HELD:
            del self._cables[next(iter(self._cables))]
        self._cables[cable] = _Held(hold_s, math.inf)

    def failed_again(self, cable: Cable) -> None:
        """Record that an unused cable failed.

        If the cable is held down, its hold-down starts anew when the cable returns."""
        known = self._cables.get(cable)
        if known and self.holds(cable):
            known.until = math.inf

    def returned(self, cable: Cable, now: float) -> None:
        """Record that probes arrive in both directions again: the hold-down begins."""
        known = self._cables.get(cable)
        if known and known.until == math.inf:
            known.until = now + known.hold_s

    def release_switch(self, dpid: Dpid, now: float) -> None:
        """Record that a switch has lost its last link, and end the hold-downs of its cables.

        A cable of the switch may be used as soon as probes arrive over the cable in both directions."""
        for cable, held in self._cables.items():
            if self.holds(cable) and any(at.dpid == dpid for at in cable):
                held.hold_s = 0.0
                held.until = min(held.until, now) if held.until < math.inf else math.inf

    def release(self, now: float) -> list[Cable]:
        """Return the cables whose hold-down has just ended, and forget the cables that have worked long enough."""
        free = [cable for cable, held in self._cables.items() if -math.inf < held.until <= now]
        for cable in free:
            self._cables[cable].until, self._cables[cable].free_since = -math.inf, now
        forgiven = [c for c, held in self._cables.items() if now >= held.free_since + FORGIVEN_AFTER * held.hold_s]
        for cable in forgiven:
            del self._cables[cable]
        return free

    def holds(self, cable: Cable) -> bool:
        known = self._cables.get(cable)
        return known is not None and known.until > -math.inf

    @property
    def held(self) -> Iterable[Cable]:
        """Cables that have failed and may not be used yet."""
        return [cable for cable in self._cables if self.holds(cable)]


class TopologyState:
    """Mutable topology behind the snapshots; owned by the thread of the control loop."""

    def __init__(
        self,
        settings: TopologySettings,
        declared: Iterable[DeclaredHost] = (),
        dpid_of: Mapping[str, Dpid | None] = MappingProxyType({}),
    ) -> None:
        """Start without switches.

        ``declared``: hosts of the inventory file, which no packet moves. ``dpid_of``: declared dpid of each switch, by
        name; None or no entry if no dpid is declared."""
        self.settings = settings
        self._dpid_of = dpid_of
        self._declared = {host.ip: host for host in declared}
        self._declared_by_switch: defaultdict[str, list[DeclaredHost]] = defaultdict(list)
        for host in self._declared.values():
            self._declared_by_switch[host.switch].append(host)
        self._switches: dict[Dpid, Switch] = {}
        self._changing: dict[Dpid, dict[PortNo, Port]] = {}
        """Changed ports of switches in ``_switches`` that no snapshot contains yet."""
        self._ready: set[Dpid] = set()
        self._up_since: dict[PortRef, float] = {}
        self._heard: dict[PortRef, PortRef] = {}
        self._arriving: defaultdict[PortRef, set[PortRef]] = defaultdict(set)
        self._last_heard: dict[PortRef, Dpid] = {}
        self._hold_downs = HoldDowns(*settings.hold_down_s)
        self._one_way = settings.one_way
        self._allowed: Mapping[PortRef, PortRef] = {}
        self._links: dict[LinkId, Link] = {}
        self._links_of = Counter[Dpid]()
        self._hosts: dict[str, Host] = {}
        self._hosts_at: defaultdict[PortRef, set[str]] = defaultdict(set)
        self._hosts_of = Counter[Dpid]()
        self._fabric = Fabric()
        self._taken = 0
        self._changed = False
        self._macs_changed = False

    @property
    def fabric(self) -> Fabric:
        """Current snapshot; the same object until something changes.

        A new MAC address of a host changes no route, so the generation stays. A host that changes its address often
        would otherwise cause work for the whole controller."""
        before = self._fabric
        if self._changed:
            self._fabric = Fabric(
                before.generation + 1,
                _frozen(self._switches, before.switches),
                _frozen(self._links, before.links),
                _frozen(self._hosts, before.hosts),
            )
        elif self._macs_changed:
            self._fabric = replace(before, hosts=_frozen(self._hosts, before.hosts))
        self._changing.clear()
        self._changed = self._macs_changed = False
        return self._fabric

    def take_news(self) -> bool:
        before, self._taken = self._taken, self._fabric.generation + self._changed
        return self._taken != before

    @property
    def intact(self) -> Fabric:
        """Current snapshot plus the cables that have failed and are not yet used again, with capacity 0."""
        failed = (sorted(cable) for cable in self._hold_downs.held)
        links = {LinkId(*src): Link(src, dst, 0.0) for a, b in failed for src, dst in ((a, b), (b, a))}
        return replace(self.fabric, links={**links, **self.fabric.links})

    # ---- switches and ports

    def switch_connected(self, dpid: Dpid, name: str, ports: Iterable[Port], now: float) -> None:
        """Record that a switch connected or reconnected. Its links are used after new probes and ``switch_ready``."""
        self.switch_left(dpid, now)
        switch = Switch(dpid, name, MappingProxyType({p.number: p for p in ports}))
        self._switches[dpid] = switch
        self._up_since |= {PortRef(dpid, p.number): now for p in switch.ports.values() if p.up}
        self._up_since |= {at: now for at, other in self._last_heard.items() if other == dpid and at in self._up_since}
        self._changed = True
        self._place_declared(switch, switch.ports.values())

    def switch_ready(self, dpid: Dpid) -> bool:
        """Record that the switch confirmed its rules, so that its links may be used.

        Returns False if this was recorded before, or if the switch is not connected."""
        switch = self._switches.get(dpid)
        if switch is None or dpid in self._ready:
            return False
        self._ready.add(dpid)
        for port in switch.ports:
            at = PortRef(dpid, port)
            self._use_links_from([at, *self._arriving.get(at, ())])
        return True

    def switch_left(self, dpid: Dpid, now: float) -> None:
        """Record that the connection has ended: the links of the switch are not used any more."""
        self._ready.discard(dpid)
        switch = self._switches.get(dpid)
        if switch is not None:
            self._changed = True
            for port in switch.ports:
                self._forget(PortRef(dpid, port), now)
            del self._switches[dpid]
            self._changing.pop(dpid, None)

    def port_changed(self, dpid: Dpid, port: Port, removed: bool, now: float) -> bool:
        """Record that a port was added, removed or changed.

        Returns False if nothing has changed, or if the switch is not connected."""
        switch = self._switches.get(dpid)
        before = switch.ports.get(port.number) if switch else None
        if switch is None or (before is None if removed else before == port):
            return False
        ports = self._changing.get(dpid)
        if ports is None:  # one copy per snapshot, not per port: thousands can change at once
            ports = self._changing[dpid] = dict(switch.ports)
            self._switches[dpid] = replace(switch, ports=MappingProxyType(ports))
        if removed:
            del ports[port.number]
        else:
            ports[port.number] = port
        self._changed = True
        self._place_declared(self._switches[dpid], [port])
        at = PortRef(dpid, port.number)
        if removed or not port.up:
            self._forget(at, now)
        else:
            self._up_since.setdefault(at, now)
        return True

    def ports_are(self, dpid: Dpid, ports: Iterable[Port], now: float) -> bool:
        """Record all ports of a switch. Returns False if nothing has changed, or if the switch is not connected."""
        switch = self._switches.get(dpid)
        gone = dict(switch.ports) if switch else {}
        changes = [(port, False) for port in ports if gone.pop(port.number, None) != port]
        changes += [(port, True) for port in gone.values()]
        return sum(self.port_changed(dpid, port, removed, now) for port, removed in changes) > 0

    def _forget(self, at: PortRef, now: float) -> None:
        self._up_since.pop(at, None)
        self._last_heard.pop(at, None)
        for src in (at, *self._arriving.get(at, ())):
            if src in self._heard:
                self._unhear(src, now)

    # ---- links

    def link_seen(self, src: PortRef, dst: PortRef, now: float) -> None:
        """Record that a probe sent out of ``src`` arrived at ``dst``, and remove hosts assumed at these ports."""
        if self._heard.get(src) not in (None, dst):
            self._unhear(src, now)
        for at in (src, dst):
            for ip in self._hosts_at.pop(at, ()):
                del self._hosts[ip]
                subtract(self._hosts_of, at.dpid)
                self._changed = True
        self._heard[src] = dst
        self._arriving[dst].add(src)
        if self._heard.get(dst) == src and src not in self._one_way:
            self._hold_downs.returned(frozenset((src, dst)), now)
        self._use_links_from([src])

    def link_lost(self, src: PortRef, dst: PortRef, now: float) -> None:
        """Record that probes sent out of ``src`` do not arrive at ``dst`` any more."""
        if self._heard.get(src) == dst:
            self._unhear(src, now)

    def connected_anew(self, ports: Iterable[PortRef], now: float) -> None:
        """Record that an optical switch has connected these one-way ports elsewhere, and forget their far ends."""
        for src in ports:
            if src in self._heard:
                self._unhear(src, now)

    def allow(self, links: Mapping[PortRef, PortRef]) -> bool:
        """Set the links of one-way ports that may be used, and return whether they have changed.

        Each link is used once a probe has arrived over it."""
        before, self._allowed = self._allowed, links
        if before is links:
            return False
        changed = [src for src in before.keys() | links.keys() if before.get(src) != links.get(src)]
        for src in changed:
            self._changed |= self._remove_link(LinkId(*src))
        self._use_links_from(changed)  # probes may have arrived before the link was allowed
        return bool(changed)

    @property
    def heard_one_way(self) -> Mapping[PortRef, PortRef]:
        """Ports where the probes of one-way ports arrive, whether the link is allowed or not."""
        heard = ((src, self._heard.get(src)) for src in self._one_way)
        return {src: dst for src, dst in heard if dst}

    def advance(self, now: float) -> None:
        """Release the links whose hold-down is over."""
        for cable in self._hold_downs.release(now):
            self._use_links_from(cable)

    def _unhear(self, src: PortRef, now: float) -> None:
        """Forget where the probes of ``src`` arrived, and stop using the links of its cable."""
        dst = self._heard.pop(src)
        self._arriving[dst].discard(src)
        if not self._arriving[dst]:
            del self._arriving[dst]
        for at, other in ((src, dst), (dst, src)):
            if at in self._up_since:
                self._up_since[at] = now  # not an edge port until discovery had time to find a link
                self._last_heard[at] = other.dpid
        if src in self._one_way:
            self._changed |= self._remove_link(LinkId(*src))
            return
        ids = (LinkId(src.dpid, src.port), LinkId(dst.dpid, dst.port))
        usable = [link for link in ids if self._remove_link(link)]
        if usable:
            self._hold_downs.failed(frozenset((src, dst)), now)
            self._changed = True
        else:
            self._hold_downs.failed_again(frozenset((src, dst)))
        for dpid in {src.dpid, dst.dpid} if usable else ():
            if self._has_hosts_but_no_link(dpid):
                self._hold_downs.release_switch(dpid, now)

    def _use_links_from(self, ports: Iterable[PortRef]) -> None:
        for src in ports:
            dst = self._heard.get(src)
            if dst is None or LinkId(src.dpid, src.port) in self._links or not self._usable(src, dst):
                continue
            one_way = src in self._one_way
            for a, b in ((src, dst),) if one_way else ((src, dst), (dst, src)):
                switch = self._switches[a.dpid]
                capacity = self.settings.capacity_bps(switch, switch.ports[a.port], False)
                self._links_of[a.dpid] += LinkId(*a) not in self._links
                self._links[LinkId(*a)] = Link(a, b, capacity, one_way)
            self._changed = True

    def _remove_link(self, link: LinkId) -> bool:
        if self._links.pop(link, None) is None:
            return False
        subtract(self._links_of, link.dpid)
        return True

    def _usable(self, src: PortRef, dst: PortRef) -> bool:
        if {src.dpid, dst.dpid} <= self._ready and src in self._up_since and dst in self._up_since:
            if src in self._one_way:
                return self._allowed.get(src) == dst
            return self._heard.get(dst) == src and not self._hold_downs.holds(frozenset((src, dst)))
        return False

    def _has_hosts_but_no_link(self, dpid: Dpid) -> bool:
        return dpid in self._switches and self._hosts_of[dpid] > 0 and not self._links_of[dpid]

    # ---- hosts

    def edge_ports(self, now: float) -> tuple[PortRef, ...]:
        """Return the ports without LLDP that have been up long enough for discovery to find a link."""
        return tuple(sorted(at for at in self._up_since if self.is_edge_port(at, now)))

    def is_edge_port(self, at: PortRef, now: float) -> bool:
        since = self._up_since.get(at)
        return (
            since is not None
            and since <= now - self.settings.edge_after_s
            and at not in self._one_way
            and not self.is_fabric_port(at)
        )

    def is_fabric_port(self, at: PortRef) -> bool:
        """Return whether the port leads to a switch, so that no host is connected to it.

        The port leads to a switch if probes pass over its cable. The port also leads to a switch if the last probes
        came from a switch that is disconnected now. Arriving packets then come from hosts behind that switch."""
        if at in self._heard or at in self._arriving:
            return True
        return at in self._last_heard and self._last_heard[at] not in self._switches

    def is_up(self, at: PortRef) -> bool:
        return at in self._up_since

    def place_of(self, ip: str) -> PortRef | None:
        """Return the port of a host; None for an unknown host. The call makes no snapshot."""
        host = self._hosts.get(ip)
        return host.at if host else None

    def host_seen(self, ip: str, mac: str, at: PortRef, now: float, is_named: bool = False) -> Learned:
        """Record an ARP packet of ``ip`` that arrived at ``at`` and return the result.

        - ``ignored``: the port is not an edge port, or not yet.
        - ``refused``: the host is declared, so that packets do not move it, or a limit on hosts is reached
          (``MAX_HOSTS``).
        - ``contested``: the port where the host was last seen is still up. The controller should first send an ARP
          request there (``host_discovery``).

        ``is_named``: whether a job names the host."""
        known = self._hosts.get(ip)
        if known and known.at == at:
            if known.mac != mac and not (ip in self._declared and self._declared[ip].mac):
                self._hosts[ip] = replace(known, mac=mac)
                self._macs_changed = True
            return "known"
        if not self.is_edge_port(at, now):
            return "ignored"
        if ip in self._declared or not self._has_room(ip, at, is_named):
            return "refused"
        if known and self.is_up(known.at):
            return "contested"
        self.place_host(ip, mac, at)
        return "moved" if known else "new"

    def move_host(self, ip: str, mac: str, at: PortRef, now: float) -> None:
        """Move a host that did not answer at its old port to ``at``, if a host can still be there."""
        if self.is_edge_port(at, now):
            self.place_host(ip, mac, at)

    def adopt_host(self, ip: str, at: PortRef, is_named: bool = False) -> None:
        """Place an unknown host at the port to which the rules of the switch send its packets.

        The limits for packets apply, because the switch may have made the rules up."""
        if ip not in self._hosts and self._has_room(ip, at, is_named):
            self.place_host(ip, None, at)

    def _has_room(self, ip: str, at: PortRef, is_named: bool) -> bool:
        of_port, of_switch = len(self._hosts_at.get(at, ())), self._hosts_of[at.dpid]
        is_full = len(self._hosts) >= MAX_HOSTS + len(self._declared)
        fits_in_all = is_named or ip in self._hosts or not is_full
        return fits_in_all and of_port < MAX_HOSTS_PER_PORT and of_switch < MAX_HOSTS_PER_SWITCH

    def place_host(self, ip: str, mac: str | None, at: PortRef) -> None:
        """Place a host at a port. The caller has checked that the host may be there."""
        switch = self._switches.get(at.dpid)
        if switch is None or at.port not in switch.ports:
            return
        nic_bps = self.settings.capacity_bps(switch, switch.ports[at.port], True)
        before = self._hosts.get(ip)
        if before:
            self._hosts_at[before.at].discard(ip)
            if not self._hosts_at[before.at]:
                del self._hosts_at[before.at]
            subtract(self._hosts_of, before.at.dpid)
        self._hosts[ip] = Host(ip, mac, at, nic_bps)
        self._hosts_at[at].add(ip)
        self._hosts_of[at.dpid] += 1
        self._changed = True

    def _place_declared(self, switch: Switch, ports: Iterable[Port]) -> None:
        """Place the declared hosts of these ports.

        Switches choose the names that they report. So a host is not placed if the name of the switch is declared with
        another dpid, or if another connected switch with this name has the host."""
        hosts = self._declared_by_switch.get(switch.name)
        if not hosts or (self._dpid_of.get(switch.name) or switch.dpid) != switch.dpid:
            return
        numbers = {port.name: port.number for port in ports}
        for host in hosts:
            if host.port in numbers:
                at = PortRef(switch.dpid, numbers[host.port])
                known = self._hosts.get(host.ip)
                if known is None or (known.at != at and not self._is_namesake(known.at.dpid, switch)):
                    self.place_host(host.ip, host.mac, at)

    def _is_namesake(self, dpid: Dpid, switch: Switch) -> bool:
        other = self._switches.get(dpid)
        return dpid != switch.dpid and other is not None and other.name == switch.name


def hosts_by_leaf(fabric: Fabric) -> dict[Dpid, list[Host]]:
    """Return the hosts of every switch with hosts, in address order."""
    leaves: dict[Dpid, list[Host]] = defaultdict(list)
    for _, host in sorted(fabric.hosts.items()):
        leaves[host.at.dpid].append(host)
    return dict(leaves)
