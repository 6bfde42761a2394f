"""How one virtual link of a job can be divided, and how switches tell the pieces apart.

By source port: a job that may split its flows opens one connection per subflow, each from a source port of that
subflow's class. The classes follow from the job's ``max_subflows`` alone, so they stay while its routes change: class i
of K has the value i in the bits above bit 0, as many of them as K needs. Bit 0 cannot be used: Linux gives connect()
even ports and bind(0) odd ones (measured, 200 of 200). When K is no power of two, some ports belong to no class: their
packets are hashed by ECMP, like those of classes without a subflow.

By connection: a job that reports its connections is told apart by both ports of each of them. It can share pairs of
hosts with other jobs, and chooses no ports.

What a division is worth depends on the sender (``Dealing``). One that follows shares gives each subflow its own. One
that deals the same bytes to each connection, or lets them take from a common queue, cannot follow shares: to the
planner each of its connections, or bundle of them, is a flow of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from signalbox.jobs.spec import Dealing, JobSpec

Pair = tuple[str, str]


class PortClass(NamedTuple):
    """The transport ports p with ``p & mask == value``."""

    value: int
    mask: int

    def holds(self, port: int) -> bool:
        return port & self.mask == self.value


def exactly(port: int) -> PortClass:
    """The class of one port."""
    return PortClass(port, 0xFFFF)


@functools.cache
def port_classes(max_subflows: int) -> tuple[PortClass, ...]:
    """One class per subflow, disjoint, in the order of the subflows; none for flows that stay whole."""
    if max_subflows == 1:
        return ()
    mask = ((1 << (max_subflows - 1).bit_length()) - 1) << 1
    return tuple(PortClass(number << 1, mask) for number in range(max_subflows))


class Connection(NamedTuple):
    """Ports of one connection, or UDP flow of RoCEv2, between two addresses."""

    src_port: int
    dst_port: int


Connections = Mapping[Pair, tuple[Connection, ...]]
"""Per (source, destination), in a fixed order."""


class Ports(NamedTuple):
    """Packets of a flow, by their ports; ``dst`` None: any."""

    src: PortClass
    dst: PortClass | None = None


@functools.cache
def _a_class_each(max_subflows: int) -> tuple[tuple[Ports, ...], ...]:
    return tuple((Ports(ports),) for ports in port_classes(max_subflows))


class Pieces(NamedTuple):
    """A flow as the planner sees it. ``weights``: shares of the flows that each travel on a path of their own; one when
    there is one. ``max_subflows``: into how many subflows, with shares, each of them may be divided."""

    weights: tuple[float, ...]
    max_subflows: int


@dataclass(frozen=True)
class Dividing:
    """How the flows of one job can be divided. ``owner``: the job's id if it reports its connections, else empty: the
    flows of jobs with other owners may have the same addresses. ``connections``: as reported."""

    max_subflows: int = 1
    dealing: Dealing = Dealing.BY_SHARE
    owner: str = ""
    connections: Connections = field(default_factory=dict)

    @classmethod
    def of(cls, spec: JobSpec) -> Dividing:
        return cls(spec.max_subflows, spec.dealing, spec.job_id if spec.reports_connections else "")

    def bundles(self, pair: Pair) -> tuple[tuple[Ports, ...], ...]:
        """What each subflow or piece of the pair's flow consists of, in their order; none when that cannot be said: the
        flow stays whole, or its connections are not reported yet."""
        if not self.owner:
            return _a_class_each(self.max_subflows)
        known = self.connections.get(pair, ())
        ports = [Ports(exactly(src), exactly(dst)) for src, dst in known]
        count = min(self.max_subflows, len(ports))
        return tuple(tuple(ports[number::count]) for number in range(count))

    def pieces(self, pair: Pair) -> Pieces:
        """Of the pair's flow."""
        total = len(self.connections.get(pair, ())) if self.owner else self.max_subflows
        count = min(self.max_subflows, total)
        if self.dealing not in (Dealing.EVEN, Dealing.COMMON_QUEUE) or count <= 1:
            return Pieces((1.0,), max(1, count))
        return Pieces(tuple(len(range(number, total, count)) / total for number in range(count)), 1)
