"""Division of a virtual link into subflows, and how switches distinguish them.

By source port: a job that can split its flows opens one connection per subflow, whose source port is in the subflow's
*port class*. The classes depend only on the job's ``max_subflows``, so they stay when its routes change
(docs/reference/job-spec.md#port-classes). Bit 0 of a port is unusable, because Linux gives even ports to connect() and
odd ones to bind(0) (measured, 200 of 200). ECMP hashes packets from ports without a class, and from ports of a class
without a subflow.

By connection: if the job reports its connections, both ports of a connection identify its subflow. Such a job can share
pairs of hosts with other jobs, and need not choose ports.

A sender whose striping follows shares gives each subflow its own share. A sender that stripes evenly, or from a common
queue, cannot give subflows different shares. The planner treats each connection of such a sender, or each bundle of
connections, as a flow of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from signalbox.jobs.spec import JobSpec, Striping

Pair = tuple[str, str]


class PortClass(NamedTuple):
    """Class of all transport ports p with ``p & mask == value``."""

    value: int
    mask: int

    def holds(self, port: int) -> bool:
        return port & self.mask == self.value


def exactly(port: int) -> PortClass:
    """Return the class that contains this port only."""
    return PortClass(port, 0xFFFF)


@functools.cache
def port_classes(max_subflows: int) -> tuple[PortClass, ...]:
    """Return the port class of each subflow, in the order of the subflows; empty for ``max_subflows`` 1.

    The classes have no port in common."""
    if max_subflows == 1:
        return ()
    mask = ((1 << (max_subflows - 1).bit_length()) - 1) << 1
    return tuple(PortClass(number << 1, mask) for number in range(max_subflows))


class Connection(NamedTuple):
    """Ports of a TCP connection, or of a UDP flow of RoCEv2, between two given addresses."""

    src_port: int
    dst_port: int


Connections = Mapping[Pair, tuple[Connection, ...]]
"""Connections of each pair of (source, destination) addresses, in a fixed order."""


class Ports(NamedTuple):
    """Source and destination ports that identify packets of a subflow. ``dst``: None for any destination port."""

    src: PortClass
    dst: PortClass | None = None


@functools.cache
def _a_class_each(max_subflows: int) -> tuple[tuple[Ports, ...], ...]:
    return tuple((Ports(ports),) for ports in port_classes(max_subflows))


class Subflows(NamedTuple):
    """Parts of a flow that the planner treats as separate flows.

    - ``weights``: fraction of the flow's bytes in each part; a single part is the whole flow
    - ``max_subflows``: largest number of subflows into which the planner may divide each part. The planner also chooses
      their shares."""

    weights: tuple[float, ...]
    max_subflows: int


@dataclass(frozen=True)
class Dividing:
    """Rules for the division of the flows of one job.

    - ``owner``: id of the job if it reports its connections, else empty. Flows of several owners may have the same
      addresses.
    - ``connections``: connections that the job has reported"""

    max_subflows: int = 1
    striping: Striping = Striping.BY_SHARE
    owner: str = ""
    connections: Connections = field(default_factory=dict)

    @classmethod
    def of(cls, spec: JobSpec) -> Dividing:
        return cls(spec.max_subflows, spec.striping, spec.job_id if spec.reports_connections else "")

    def bundles(self, pair: Pair) -> tuple[tuple[Ports, ...], ...]:
        """Return the ports that identify the packets of each subflow between a pair of addresses.

        The result is empty for a flow that is not divided, and while the job has not reported its connections."""
        if not self.owner:
            return _a_class_each(self.max_subflows)
        known = self.connections.get(pair, ())
        ports = [Ports(exactly(src), exactly(dst)) for src, dst in known]
        count = min(self.max_subflows, len(ports))
        return tuple(tuple(ports[number::count]) for number in range(count))

    def subflows(self, pair: Pair) -> Subflows:
        """Return the parts into which the flow between a pair of addresses is divided before it is planned."""
        total = len(self.connections.get(pair, ())) if self.owner else self.max_subflows
        count = min(self.max_subflows, total)
        if self.striping not in (Striping.EVEN, Striping.COMMON_QUEUE) or count <= 1:
            return Subflows((1.0,), max(1, count))
        return Subflows(tuple(len(range(number, total, count)) / total for number in range(count)), 1)
