"""Limits on the use of shared resources by one switch or one address. Sans-IO; ``now`` is in monotonic seconds.

The resources are connections, ports, messages that wait for the control loop, and port changes. If a switch reports too
many port changes, the latest change of each port is passed on later, and earlier changes are dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import structlog

from controller.config import OpenFlowConfig
from controller.fabric.messages import PortChanged, RefusalReason
from controller.fabric.topology import Dpid, Port, PortNo
from controller.log_limit import LimitedLog
from controller.shared_map import subtract
from controller.tables.messages import FromSwitches

limited_log = LimitedLog(structlog.get_logger("controller.southbound"), period_s=10.0, lines=2)
"""Log for events that switches cause, limited because any peer may connect any number of switches."""

MAX_SWITCH_PORTS = 4096
"""Largest number of ports of one switch. A chassis with 576 ports, each split into four, has 2,304."""


class Limits:
    """Use of connections and ports by all switches.

    ``known``: switches of the fabric, for which connections are reserved. At most half of all connections are reserved,
    so that new switches can always connect, even if many known dpids were invented."""

    def __init__(self, openflow: OpenFlowConfig, known: Iterable[Dpid] = ()) -> None:
        self.backlog = Backlog()
        """Messages of all connections."""
        self._most = openflow.max_connections
        self._most_of_address = openflow.max_address_connections
        self._most_ports = openflow.max_ports
        self._known = set(list(known)[: self._most // 2])
        self._connections: Counter[str] = Counter()
        self._dpids: Counter[Dpid] = Counter()
        self._missing = len(self._known)
        self._ports = 0

    def connect(self, address: str) -> tuple[RefusalReason, str] | None:
        """Count one more connection from this address, or return the reason and details of its refusal."""
        if (total := self._connections.total()) >= self._most:
            return "too_many", f"{total} connections exist, which is the limit (openflow.max_connections)"
        if (own := self._connections[address]) >= self._most_of_address:
            limit = f"the limit (openflow.max_address_connections = {self._most_of_address})"
            return "too_many_of_address", f"{own} connections from {address} exist, which is {limit}"
        self._connections[address] += 1
        return None

    def identify(self, dpid: Dpid) -> str:
        """Assign a connection to this switch. Return the reason for a refusal; empty if accepted."""
        if dpid not in self._known:
            if self._connections.total() + self._missing > self._most:
                return "the remaining connections are reserved for known switches"
            if len(self._known) < self._most // 2:
                self._known.add(dpid)
                self._missing += 1
        if not self._dpids[dpid] and dpid in self._known:
            self._missing -= 1
        self._dpids[dpid] += 1
        return ""

    def leave(self, address: str, dpid: Dpid | None, ports: int) -> None:
        """Count the end of a connection. ``dpid``: None if it was unknown. ``ports``: number of ports of the switch."""
        subtract(self._connections, address)
        self._ports -= ports
        if dpid is not None:
            subtract(self._dpids, dpid)
            self._missing += dpid in self._known and dpid not in self._dpids

    def take_ports(self, before: int, more: int) -> str:
        """Count ``more`` new ports of a switch that has ``before`` ports.

        Return the reason for a refusal; empty if the ports are accepted."""
        if before + more > MAX_SWITCH_PORTS:
            return f"it has more than {MAX_SWITCH_PORTS} ports"
        if self._ports + more > self._most_ports:
            return f"all switches together have more than {self._most_ports} ports (openflow.max_ports)"
        self._ports += more
        return ""

    def port_removed(self) -> None:
        self._ports -= 1


MOST_WAITING = 100
"""Largest number of messages of one connection that wait for the control loop. If more wait, reading from the peer
pauses."""
MOST_OF_MANY = 2
"""Limit that replaces ``MOST_WAITING`` while more than ``MOST_IN_ALL`` messages of all connections together wait."""
MOST_IN_ALL = 1000


class Backlog:
    """Number of messages of one connection that wait for the control loop.

    One thread counts ``added`` messages, and another one ``taken`` messages. ``of_all``: the same numbers for all
    connections together."""

    def __init__(self, of_all: Backlog | None = None) -> None:
        self.added = 0
        self.taken = 0
        self._of_all = of_all

    def add(self) -> None:
        self.added += 1
        if self._of_all:
            self._of_all.added += 1

    def take(self) -> None:
        self.taken += 1
        if self._of_all:
            self._of_all.taken += 1

    @property
    def waiting(self) -> int:
        return self.added - self.taken

    def exceeds(self, part: float = 1.0) -> bool:
        """Return whether more messages wait than this fraction of the largest number."""
        in_all = self._of_all.waiting if self._of_all else 0
        return self.waiting > part * (MOST_WAITING if in_all <= MOST_IN_ALL else MOST_OF_MANY)


class Put(Protocol):
    """Function that queues a message for the control loop, and never waits.

    ``backlog`` counts the message until the control loop has processed it."""

    def __call__(self, message: FromSwitches, backlog: Backlog | None = None, /) -> None: ...


# ---- port changes


AT_ONCE = 256
"""Largest number of port changes of one switch that are passed on per ``PERIOD_S``. Most switches have fewer ports."""
PERIOD_S = 1.0
LASTING = 1
"""Largest number of consecutive periods in which changes of a switch are delayed before it counts as flooding."""


@dataclass(slots=True, eq=False)
class _Switch:
    ends_at: float
    count: int = 0
    held: dict[PortNo, PortChanged] = field(default_factory=dict)
    """Delayed changes: the latest change of each port, in the order in which the ports first changed."""
    periods: int = 0
    """Number of consecutive periods in which changes were delayed."""


class PortChanges:
    def __init__(self) -> None:
        self._switches: dict[Dpid, _Switch] = {}

    def changed(self, dpid: Dpid, port: Port, removed: bool, now: float) -> list[PortChanged]:
        """Return a list with the change if it is passed on now, or an empty list if it is delayed."""
        change = PortChanged(dpid, port, removed)
        switch = self._switches.get(dpid)
        if switch is None or (now >= switch.ends_at and not switch.held):
            switch = self._switches[dpid] = _Switch(now + PERIOD_S)
        if switch.held or switch.count >= AT_ONCE:
            switch.held[port.number] = change
            return []
        switch.count += 1
        return [change]

    def tick(self, now: float) -> Iterator[PortChanged]:
        """Yield the delayed changes that may be passed on now."""
        for switch in self._switches.values():
            if switch.held and now >= switch.ends_at:
                switch.ends_at, switch.count = now + PERIOD_S, AT_ONCE
                switch.periods += 1
                for number in list(islice(switch.held, AT_ONCE)):
                    yield switch.held.pop(number)

    def floods(self, dpid: Dpid) -> bool:
        """Return whether changes of this switch are delayed now, and have been for more than ``LASTING`` periods."""
        switch = self._switches.get(dpid)
        return switch is not None and switch.periods > LASTING and bool(switch.held)

    def switch_left(self, dpid: Dpid) -> None:
        self._switches.pop(dpid, None)
