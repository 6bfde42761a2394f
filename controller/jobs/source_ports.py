"""Source-port classes: how the subflows of a split flow are told apart on the wire.

A job that may split its flows opens one connection per subflow, each from a source port of that subflow's class. The
classes follow from the job's ``max_subflows`` alone, so they stay while its routes change: class i of K has the value i
in the bits above bit 0, as many of them as K needs. Bit 0 says nothing: Linux gives connect() even ports and bind(0)
odd ones (measured, 200 of 200). When K is no power of two, some ports belong to no class: their packets are hashed by
ECMP, like those of classes without a subflow.
"""

from __future__ import annotations

from typing import NamedTuple


class PortClass(NamedTuple):
    """The transport ports p with ``p & mask == value``."""

    value: int
    mask: int

    def holds(self, port: int) -> bool:
        return port & self.mask == self.value


def exactly(port: int) -> PortClass:
    """The class of one port."""
    return PortClass(port, 0xFFFF)


def port_classes(max_subflows: int) -> tuple[PortClass, ...]:
    """One class per subflow, disjoint, in the order of the subflows; none for flows that stay whole."""
    if max_subflows == 1:
        return ()
    mask = ((1 << (max_subflows - 1).bit_length()) - 1) << 1
    return tuple(PortClass(number << 1, mask) for number in range(max_subflows))
