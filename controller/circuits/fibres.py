"""Configured fibres, and the detection of fibres that do not work or are not connected as configured. Pure.

``Cabling`` has the configured connections between interfaces of servers and ports of optical switches, each a pair of
fibres, one for each direction. Optical switches send no LLDP of their own, so the controller cannot discover these
connections. The controller discovers where a circuit leads by LLDP between servers, as for any link.

``FibreState`` gets the active circuits, the circuits over which no probes arrive, and the interface at which the probes
of each interface arrive. It finds circuits with a fibre that may be dark, even after these circuits were replaced. It
finds interfaces whose probes arrive at an unexpected interface. And it finds pairs of interfaces, at one optical switch
or one server, whose fibres may be swapped: all probes of such a pair arrive as they would with swapped fibres. Several
pairs may explain the same probes.

Fibres are examined when circuits and probes have not changed for a while. A finding stays until probes contradict it or
a port is down. ``now`` is monotonic seconds.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from controller.fabric.topology import Dpid, PortNo, PortRef, ports_by_switch

Circuits = Mapping[PortRef, PortRef]
"""Receiving interface of each sending interface, both connected to the same optical switch."""


@dataclass(frozen=True)
class Cabling:
    """Configured fibres of all optical switches."""

    interface_at: Mapping[PortRef, PortRef] = field(default_factory=lambda: MappingProxyType({}))
    """Interface of a server at each port of an optical switch.

    A server has at most one interface at each optical switch."""

    @cached_property
    def fibre_of(self) -> Mapping[PortRef, PortRef]:
        """Port of an optical switch to which each interface of a server is connected."""
        return {interface: at for at, interface in self.interface_at.items()}

    @cached_property
    def optical(self) -> frozenset[Dpid]:
        """Dpids of the optical switches."""
        return frozenset(at.dpid for at in self.interface_at)

    @cached_property
    def fibres(self) -> Mapping[Dpid, tuple[tuple[PortNo, PortRef], ...]]:
        """Ports of each optical switch that lead to servers, in order, each with the interface of the server."""
        found: dict[Dpid, list[tuple[PortNo, PortRef]]] = {}
        for at, interface in sorted(self.interface_at.items()):
            found.setdefault(at.dpid, []).append((at.port, interface))
        return {dpid: tuple(of) for dpid, of in found.items()}

    @cached_property
    def interfaces(self) -> Mapping[Dpid, frozenset[PortNo]]:
        """Ports of each server that lead to optical switches."""
        return ports_by_switch(self.fibre_of)

    def interface(self, server: Dpid, optical: Dpid) -> PortRef | None:
        """Return the interface of a server at an optical switch; None if there is none."""
        return self._by_both.get((server, optical))

    @cached_property
    def _by_both(self) -> Mapping[tuple[Dpid, Dpid], PortRef]:
        return {(interface.dpid, at.dpid): interface for at, interface in self.interface_at.items()}

    def circuits(self, connected: Mapping[PortRef, PortRef]) -> Circuits:
        """Return the circuits that optical switches make.

        ``connected``: output port by input port, for each optical switch."""
        ends = ((self.interface_at.get(src), self.interface_at.get(dst)) for src, dst in connected.items())
        return {src: dst for src, dst in ends if src and dst}

    def connected(self, circuits: Circuits) -> Mapping[Dpid, Mapping[PortNo, PortNo]]:
        """Return, for each optical switch, the cross-connects that make these circuits: output port by input port."""
        found: dict[Dpid, dict[PortNo, PortNo]] = {dpid: {} for dpid in self.optical}
        for src, dst in circuits.items():
            at = self.fibre_of[src]
            found[at.dpid][at.port] = self.fibre_of[dst].port
        return found


def cabling_of(fibres: Mapping[tuple[int, int], tuple[int, int]]) -> Cabling:
    """Return the cabling of the configured fibres.

    ``fibres``: (dpid, port) of the connected server, by (dpid, port) of the optical switch."""

    def port_ref(at: tuple[int, int]) -> PortRef:
        return PortRef(Dpid(at[0]), PortNo(at[1]))

    return Cabling({port_ref(at): port_ref(interface) for at, interface in fibres.items()})


SETTLED_S = 1.5
"""Seconds without a change after which fibres are examined.

Servers send probes every second, and at once when a circuit is made."""

Swap = frozenset[PortRef]
"""Two interfaces whose fibres may be swapped."""


@dataclass
class FibreState:
    """State of the fibre checks."""

    cabling: Cabling
    swaps: frozenset[Swap] = frozenset()
    """Pairs of interfaces whose fibres may be swapped."""
    misrouted: Circuits = field(default_factory=dict)
    """Unexpected interface at which probes arrive, by the interface that sends them.

    Neither a circuit nor a swap of fibres explains that the probes arrive there."""
    silent: frozenset[tuple[PortRef, PortRef]] = frozenset()
    """Circuits over which no probe has arrived yet, as (sender, receiver); without interfaces in ``swaps``.

    An entry is removed when probes of the sender have arrived anywhere, and any probes have arrived at the receiver."""
    _seen: tuple[Circuits, Circuits] = field(default_factory=lambda: ({}, {}))
    _looks_at: float = math.inf
    _is_read: bool = False

    def follow(
        self,
        active: Circuits,
        missing: frozenset[tuple[PortRef, PortRef]],
        heard: Circuits,
        working: Container[PortRef],
        is_changing: bool,
        now: float,
    ) -> frozenset[Dpid]:
        """Update the findings, and return the optical switches whose cross-connects should be read again.

        Called ten times a second. These optical switches are read before findings about their fibres are reported,
        because another controller or a person may have changed their cross-connects.

        ``active``: circuits over which probes should pass. ``missing``: active circuits over which no probes arrive.
        ``heard``: for each interface, the interface at which its probes arrive. ``missing`` and ``heard`` are limited
        to connected optical switches. ``working``: interfaces that receive light; the state of other interfaces is
        unknown. ``is_changing``: whether a change of circuits is under way."""
        if self.silent or missing:
            arriving, swapped = set(heard.values()), frozenset[PortRef]().union(*self.swaps)
            self.silent = frozenset(
                (src, dst)
                for src, dst in self.silent | missing
                if src in working and dst in working and swapped.isdisjoint((src, dst))
                if not (src in heard and dst in arriving)
            )
        if self.swaps or self.misrouted:
            self.swaps = frozenset(swap for swap in self.swaps if all(at in working for at in swap))
            self.misrouted = {src: dst for src, dst in self.misrouted.items() if src in working}
        if is_changing or (active, heard) != self._seen:
            self._seen, self._looks_at, self._is_read = (active, heard), now + SETTLED_S, False
        elif now >= self._looks_at:
            wrong = [src for src, dst in heard.items() if active.get(src) != dst]
            if wrong and not self._is_read:
                self._looks_at, self._is_read = now + SETTLED_S, True
                return frozenset(self.cabling.fibre_of[src].dpid for src in wrong)
            self._looks_at = math.inf
            self._look(active, heard)
        return frozenset()

    def _look(self, active: Circuits, heard: Circuits) -> None:
        found = _Found(active, heard)
        wrong = {src: dst for src, dst in heard.items() if active.get(src) != dst}
        kept = {swap for swap in self.swaps if found.agrees(swap)}
        for src, dst in wrong.items():
            if not any(found.explains(swap, src) for swap in kept):
                kept |= {swap for swap in self._possible_swaps(src, dst, active) if found.explains(swap, src)}
        self.swaps = frozenset(kept)
        self.misrouted = {src: dst for src, dst in wrong.items() if not any(found.touches(swap, src) for swap in kept)}

    def _possible_swaps(self, src: PortRef, dst: PortRef, active: Circuits) -> Iterator[Swap]:
        """Yield the swaps that may make the probes of ``src`` arrive at ``dst``.

        Either the fibres of ``dst`` and of the end of the circuit of ``src`` are swapped, or the fibres of ``src`` and
        another interface."""
        if (to := active.get(src)) and self._may_be_swapped(to, dst):
            yield frozenset((to, dst))
        for other in active:
            if other != src and self._may_be_swapped(src, other):
                yield frozenset((src, other))

    def _may_be_swapped(self, one: PortRef, other: PortRef) -> bool:
        fibres = self.cabling.fibre_of
        if one == other or one not in fibres or other not in fibres:
            return False
        return one.dpid == other.dpid or fibres[one].dpid == fibres[other].dpid

    def partners(self) -> Mapping[PortRef, tuple[PortRef, ...]]:
        """Return, for each interface, the interfaces with which its fibres may be swapped."""
        found: dict[PortRef, tuple[PortRef, ...]] = {}
        for one, other in sorted(sorted(swap) for swap in self.swaps):
            found[one] = (*found.get(one, ()), other)
            found[other] = (*found.get(other, ()), one)
        return found


class _Found:
    """Test of swaps: whether two swapped pairs of fibres would explain where the probes arrive.

    ``active``: active circuits. ``heard``: for each interface, the interface at which its probes arrive."""

    def __init__(self, active: Circuits, heard: Circuits) -> None:
        self._active, self._heard = active, heard
        self._ends_at: dict[PortRef, set[PortRef]] = {}
        for circuits in (active, heard):
            for src, dst in circuits.items():
                self._ends_at.setdefault(dst, set()).add(src)

    def agrees(self, swap: Swap) -> bool:
        """Return whether all probes from and to the two interfaces arrive as they would with this swap."""
        of_both = {*swap, *(src for at in swap for src in self._ends_at.get(at, ()))}
        return all(self._heard[src] == self._expected(swap, src) for src in of_both if src in self._heard)

    def explains(self, swap: Swap, src: PortRef) -> bool:
        return self._heard[src] == self._expected(swap, src) and self.agrees(swap)

    def touches(self, swap: Swap, src: PortRef) -> bool:
        """Return whether, with this swap, probes of ``src`` would arrive elsewhere than at the end of its circuit."""
        return self._expected(swap, src) != self._active.get(src)

    def _expected(self, swap: Swap, src: PortRef) -> PortRef | None:
        dst = self._active.get(_other(swap, src))
        return _other(swap, dst) if dst else None


def _other(swap: Swap, at: PortRef) -> PortRef:
    """Return the other interface of the swap if ``at`` is one of its two interfaces; if not, return ``at``."""
    if at not in swap:
        return at
    one, other = swap
    return other if at == one else one
