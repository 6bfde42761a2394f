"""Which interface of a server is connected to which port of an optical switch: by a pair of fibres, one each way.

Optical switches pass light on and send no LLDP of their own, so this cannot be learnt: it is configured. Where a
circuit leads is seen by LLDP between servers like any link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from controller.fabric.topology import Dpid, PortNo, PortRef, ports_by_switch

Circuits = Mapping[PortRef, PortRef]
"""By the interface that sends the one that receives. Both are connected to one optical switch."""


@dataclass(frozen=True)
class Cabling:
    """``interface_at``: by the port of an optical switch the interface of a server there. A server has at most one
    interface at each optical switch."""

    interface_at: Mapping[PortRef, PortRef] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def fibre_of(self) -> Mapping[PortRef, PortRef]:
        """By the interface of a server its port of an optical switch."""
        return {interface: at for at, interface in self.interface_at.items()}

    @cached_property
    def optical(self) -> frozenset[Dpid]:
        """The optical switches."""
        return frozenset(at.dpid for at in self.interface_at)

    @cached_property
    def fibres(self) -> Mapping[Dpid, tuple[tuple[PortNo, PortRef], ...]]:
        """By optical switch its ports that lead to servers, in their order, each with the interface there."""
        found: dict[Dpid, list[tuple[PortNo, PortRef]]] = {}
        for at, interface in sorted(self.interface_at.items()):
            found.setdefault(at.dpid, []).append((at.port, interface))
        return {dpid: tuple(of) for dpid, of in found.items()}

    @cached_property
    def interfaces(self) -> Mapping[Dpid, frozenset[PortNo]]:
        """By server its ports that lead to optical switches."""
        return ports_by_switch(self.fibre_of)

    def interface(self, server: Dpid, optical: Dpid) -> PortRef | None:
        """The one of that server at that optical switch."""
        return self._by_both.get((server, optical))

    @cached_property
    def _by_both(self) -> Mapping[tuple[Dpid, Dpid], PortRef]:
        return {(interface.dpid, at.dpid): interface for at, interface in self.interface_at.items()}

    def circuits(self, connected: Mapping[PortRef, PortRef]) -> Circuits:
        """``connected``: by a port of an optical switch the port that its light leaves by."""
        ends = ((self.interface_at.get(src), self.interface_at.get(dst)) for src, dst in connected.items())
        return {src: dst for src, dst in ends if src and dst}

    def connected(self, circuits: Circuits) -> Mapping[Dpid, Mapping[PortNo, PortNo]]:
        """By optical switch what it has to connect for these circuits, port to port."""
        found: dict[Dpid, dict[PortNo, PortNo]] = {dpid: {} for dpid in self.optical}
        for src, dst in circuits.items():
            at = self.fibre_of[src]
            found[at.dpid][at.port] = self.fibre_of[dst].port
        return found


def cabling_of(fibres: Mapping[tuple[int, int], tuple[int, int]]) -> Cabling:
    """``fibres``: by dpid and port of an optical switch those of the server there."""

    def port_ref(at: tuple[int, int]) -> PortRef:
        return PortRef(Dpid(at[0]), PortNo(at[1]))

    return Cabling({port_ref(at): port_ref(interface) for at, interface in fibres.items()})
