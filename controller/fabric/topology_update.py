"""Turns what the southbound reports into the ``Fabric`` that everybody else uses.

Owns which links are usable. A cable counts when LLDP came both ways, both ports are up and both switches hold their
rules; a cable that failed once stays out until all that is true again and its hold-down is over (DESIGN section 4: a
rebooted spine has ports before it has rules). Hosts are kept where they were last seen: a silent host is not a
lost one. Pure: every input takes ``now`` (monotonic seconds), nothing is sent from here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, Port, PortRef, Switch

MAX_HOSTS_PER_PORT = 64


@dataclass(frozen=True, slots=True)
class TopologySettings:
    """``capacity_bps(switch, port, at_edge)``: capacity of what is plugged into a port, each way."""

    hold_down_s: float
    edge_after_s: float
    capacity_bps: Callable[[Switch, Port, bool], float]


Learned = Literal["new", "known", "moved", "refused"]


class TopologyState:
    """The mutable picture behind the snapshots; owned by the control loop's thread."""

    def __init__(self, settings: TopologySettings) -> None:
        self._settings = settings
        self._switches: dict[Dpid, Switch] = {}
        self._ready: set[Dpid] = set()
        self._up_since: dict[PortRef, float] = {}
        self._heard: dict[PortRef, PortRef] = {}
        self._held_until: dict[frozenset[PortRef], float] = {}
        self._links: dict[LinkId, Link] = {}
        self._hosts: dict[str, Host] = {}
        self._fabric = Fabric()
        self._changed = False

    @property
    def fabric(self) -> Fabric:
        """The current snapshot; the same object until something changes."""
        if self._changed:
            self._changed = False
            self._fabric = Fabric(
                self._fabric.generation + 1,
                MappingProxyType(dict(self._switches)),
                MappingProxyType(dict(self._links)),
                MappingProxyType(dict(self._hosts)),
            )
        return self._fabric

    @property
    def intact(self) -> Fabric:
        """The current snapshot with the cables that have failed and have not come back; those carry nothing."""
        failed = (sorted(cable) for cable in self._held_until)
        links = {LinkId(*src): Link(src, dst, 0.0) for a, b in failed for src, dst in ((a, b), (b, a))}
        return replace(self.fabric, links={**links, **self.fabric.links})

    # ---- switches and ports

    def switch_connected(self, dpid: Dpid, name: str, ports: Iterable[Port], now: float) -> None:
        """A handshake, the first or a later one: ports start afresh, links wait for probes and ``switch_ready``."""
        self.switch_left(dpid, now)
        switch = Switch(dpid, name, MappingProxyType({p.number: p for p in ports}))
        self._switches[dpid] = switch
        self._up_since |= {PortRef(dpid, p.number): now for p in switch.ports.values() if p.up}
        self._changed = True

    def switch_ready(self, dpid: Dpid, now: float) -> None:
        """The switch confirmed the rules it should have; its links may be used."""
        if dpid in self._switches and dpid not in self._ready:
            self._ready.add(dpid)
            self._recheck([src for src in self._heard if src.dpid == dpid], now)

    def switch_left(self, dpid: Dpid, now: float) -> None:
        """The connection is gone: its links are not used any more."""
        self._ready.discard(dpid)
        switch = self._switches.pop(dpid, None)
        if switch is not None:
            self._changed = True
            for port in switch.ports:
                self._forget(PortRef(dpid, port), now)

    def port_changed(self, dpid: Dpid, port: Port, removed: bool, now: float) -> bool:
        """A port came, went or changed. False when nothing did, or the switch is not connected."""
        switch = self._switches.get(dpid)
        if switch is None or (not removed and switch.ports.get(port.number) == port):
            return False
        ports = {number: p for number, p in switch.ports.items() if number != port.number}
        if not removed:
            ports[port.number] = port
        self._switches[dpid] = replace(switch, ports=MappingProxyType(ports))
        self._changed = True
        at = PortRef(dpid, port.number)
        if removed or not port.up:
            self._forget(at, now)
        else:
            self._up_since.setdefault(at, now)
        return True

    def _forget(self, at: PortRef, now: float) -> None:
        self._up_since.pop(at, None)
        for src in [src for src, dst in self._heard.items() if at in (src, dst)]:
            self._unhear(src, now)

    # ---- links

    def link_seen(self, src: PortRef, dst: PortRef, now: float) -> None:
        """A probe sent out of ``src`` arrived at ``dst``. Hosts that were taken to be at these ports are not."""
        if self._heard.get(src) not in (None, dst):
            self._unhear(src, now)
        for ip in [host.ip for host in self._hosts.values() if host.at in (src, dst)]:
            del self._hosts[ip]
            self._changed = True
        self._heard[src] = dst
        cable = frozenset((src, dst))
        if self._held_until.get(cable) == math.inf and self._heard.get(dst) == src:
            self._held_until[cable] = now + self._settings.hold_down_s
        self._recheck([src], now)

    def link_lost(self, src: PortRef, dst: PortRef, now: float) -> None:
        """Probes stopped."""
        if self._heard.get(src) == dst:
            self._unhear(src, now)

    def advance(self, now: float) -> None:
        """Hold-downs that are over release their links."""
        over = [cable for cable, until in self._held_until.items() if until <= now]
        for cable in over:
            del self._held_until[cable]
            self._recheck(cable, now)

    def _unhear(self, src: PortRef, now: float) -> None:
        dst = self._heard.pop(src)
        for at in (src, dst):
            if at in self._up_since:
                self._up_since[at] = now  # no edge port before discovery had its chance again
        ids = (LinkId(src.dpid, src.port), LinkId(dst.dpid, dst.port))
        usable = [self._links.pop(link) for link in ids if link in self._links]
        if usable or frozenset((src, dst)) in self._held_until:
            self._held_until[frozenset((src, dst))] = math.inf
        self._changed |= bool(usable)

    def _recheck(self, ports: Iterable[PortRef], now: float) -> None:
        for src in ports:
            dst = self._heard.get(src)
            if dst is None or LinkId(src.dpid, src.port) in self._links or not self._usable(src, dst, now):
                continue
            for a, b in ((src, dst), (dst, src)):
                switch = self._switches[a.dpid]
                capacity = self._settings.capacity_bps(switch, switch.ports[a.port], False)
                self._links[LinkId(a.dpid, a.port)] = Link(a, b, capacity)
            self._changed = True

    def _usable(self, src: PortRef, dst: PortRef, now: float) -> bool:
        return (
            self._heard.get(dst) == src
            and {src.dpid, dst.dpid} <= self._ready
            and src in self._up_since
            and dst in self._up_since
            and self._held_until.get(frozenset((src, dst)), now) <= now
        )

    # ---- hosts

    def edge_ports(self, now: float) -> tuple[PortRef, ...]:
        """Up, silent on LLDP, and up for long enough that discovery had its chance."""
        fabric_ports = set(self._heard) | set(self._heard.values())
        settled = now - self._settings.edge_after_s
        return tuple(sorted(at for at, since in self._up_since.items() if at not in fabric_ports and since <= settled))

    def is_fabric_port(self, at: PortRef) -> bool:
        return at in self._heard or at in self._heard.values()

    def host_seen(self, ip: str, mac: str | None, at: PortRef, now: float) -> Learned:
        """An ARP packet of ``ip`` came in at ``at``. Refused: not an edge port (yet), the port claims too many
        addresses, or the address belongs to a port that is still up."""
        known = self._hosts.get(ip)
        if known and known.at == at:
            if mac and known.mac != mac:
                self._hosts[ip] = replace(known, mac=mac)
                self._changed = True
            return "known"
        if known and known.at in self._up_since:
            return "refused"
        if at not in self.edge_ports(now) or sum(h.at == at for h in self._hosts.values()) >= MAX_HOSTS_PER_PORT:
            return "refused"
        self.place_host(ip, mac, at)
        return "moved" if known else "new"

    def place_host(self, ip: str, mac: str | None, at: PortRef) -> None:
        """Put a host at a port without doubt: from the inventory, or adopted from the switch's own rules."""
        switch = self._switches.get(at.dpid)
        if switch is None or at.port not in switch.ports:
            return
        nic_bps = self._settings.capacity_bps(switch, switch.ports[at.port], True)
        self._hosts[ip] = Host(ip, mac, at, nic_bps)
        self._changed = True


@dataclass(frozen=True, slots=True)
class DeclaredHost:
    """A host from the inventory file, by the names of its switch and port."""

    ip: str
    mac: str | None
    switch: str
    port: str


def place_declared(state: TopologyState, declared: Mapping[str, Iterable[DeclaredHost]], dpid: Dpid) -> None:
    """Put the declared hosts of one connected switch at their ports. ``declared``: by the names of the switches."""
    switch = state.fabric.switches[dpid]
    hosts = declared.get(switch.name, ())
    ports = {port.name: PortRef(dpid, port.number) for port in switch.ports.values()} if hosts else {}
    known = state.fabric.hosts
    for host in hosts:
        at = ports.get(host.port)
        if at and (host.ip not in known or known[host.ip].at != at):
            state.place_host(host.ip, host.mac, at)


def hosts_by_leaf(fabric: Fabric) -> dict[Dpid, list[Host]]:
    """The hosts of every switch that has any, in address order."""
    leaves: dict[Dpid, list[Host]] = defaultdict(list)
    for _, host in sorted(fabric.hosts.items()):
        leaves[host.at.dpid].append(host)
    return dict(leaves)
