"""Configured connections between interfaces of servers and ports of optical switches, each by a pair of fibres.

A pair has one fibre for each direction. Optical switches pass light on and send no LLDP of their own, so the controller
cannot discover these connections. It discovers where a circuit leads by LLDP between servers, as for any link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from controller.fabric.topology import Dpid, PortNo, PortRef, ports_by_switch

Circuits = Mapping[PortRef, PortRef]
"""Receiving interface of each sending interface. Both are connected to the same optical switch."""


@dataclass(frozen=True)
class Cabling:
    """Connections of all optical switches."""

    interface_at: Mapping[PortRef, PortRef] = field(default_factory=lambda: MappingProxyType({}))
    """Interface of a server at each port of an optical switch.

    A server has at most one interface at each optical switch."""

    @cached_property
    def fibre_of(self) -> Mapping[PortRef, PortRef]:
        """Port of an optical switch that each interface of a server is connected to."""
        return {interface: at for at, interface in self.interface_at.items()}

    @cached_property
    def optical(self) -> frozenset[Dpid]:
        """Dpids of the optical switches."""
        return frozenset(at.dpid for at in self.interface_at)

    @cached_property
    def fibres(self) -> Mapping[Dpid, tuple[tuple[PortNo, PortRef], ...]]:
        """Ports of each optical switch that lead to servers, in order, each with the interface there."""
        found: dict[Dpid, list[tuple[PortNo, PortRef]]] = {}
        for at, interface in sorted(self.interface_at.items()):
            found.setdefault(at.dpid, []).append((at.port, interface))
        return {dpid: tuple(of) for dpid, of in found.items()}

    @cached_property
    def interfaces(self) -> Mapping[Dpid, frozenset[PortNo]]:
        """Ports of each server that lead to optical switches."""
        return ports_by_switch(self.fibre_of)

    def interface(self, server: Dpid, optical: Dpid) -> PortRef | None:
        """Return the interface of that server at that optical switch; None when there is none."""
        return self._by_both.get((server, optical))

    @cached_property
    def _by_both(self) -> Mapping[tuple[Dpid, Dpid], PortRef]:
        return {(interface.dpid, at.dpid): interface for at, interface in self.interface_at.items()}

    def circuits(self, connected: Mapping[PortRef, PortRef]) -> Circuits:
        """Return the circuits that optical switches make.

        ``connected``: for each input port of an optical switch the port by which its light leaves."""
        ends = ((self.interface_at.get(src), self.interface_at.get(dst)) for src, dst in connected.items())
        return {src: dst for src, dst in ends if src and dst}

    def connected(self, circuits: Circuits) -> Mapping[Dpid, Mapping[PortNo, PortNo]]:
        """Return for each optical switch the cross-connects (input port, output port) that make these circuits."""
        found: dict[Dpid, dict[PortNo, PortNo]] = {dpid: {} for dpid in self.optical}
        for src, dst in circuits.items():
            at = self.fibre_of[src]
            found[at.dpid][at.port] = self.fibre_of[dst].port
        return found


def cabling_of(fibres: Mapping[tuple[int, int], tuple[int, int]]) -> Cabling:
    """Return the cabling of the configured fibres.

    ``fibres``: for each (dpid, port) of an optical switch, the (dpid, port) of the server that is connected there."""

    def port_ref(at: tuple[int, int]) -> PortRef:
        return PortRef(Dpid(at[0]), PortNo(at[1]))

    return Cabling({port_ref(at): port_ref(interface) for at, interface in fibres.items()})
