"""Flows and groups of each switch, and every change of them, rebuilt from captured messages (``capture``).

Each change has the time at which it was sent, and the time at which the barrier after it was answered. ``Observed``
also records when switches connected, lost ports and sent their rules. Times are monotonic seconds.
"""

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from benchmarks.openflow_bytes import (
    MORE,
    OFPPR_DELETE,
    FlowChange,
    GroupChange,
    Multipart,
    Type,
    flow_change,
    group_change,
    multipart_kind,
    xid_of,
)
from controller.fabric.topology import Dpid, PortNo
from controller.tables.rules import Table

READ_BACK = (Multipart.FLOW, Multipart.GROUP_DESC)
"""Requests with which a controller reads all rules of a switch."""
_ALL_GROUPS = 0xFFFF_FFFC


class FlowId(NamedTuple):
    """Identity of a flow entry (OpenFlow 1.3.5, section 6.4)."""

    table: int
    priority: int
    match: bytes


@dataclass(slots=True)
class Change:
    """Flow-mod, group-mod or meter-mod (``what`` is None for a meter-mod)."""

    dpid: Dpid
    sent: float
    what: FlowChange | GroupChange | None
    before: FlowChange | GroupChange | None = None
    """Flow or group as it was before the change; None if there was none."""
    confirmed: float | None = None
    """Time of the reply to the barrier after the change; None until then."""


@dataclass(slots=True)
class SwitchState:
    """Rules of a switch as far as the messages tell."""

    flows: dict[FlowId, FlowChange] = field(default_factory=dict)
    groups: dict[int, GroupChange] = field(default_factory=dict)
    in_doubt: set[int] = field(default_factory=set)
    """Ids of groups whose last change may not have arrived, because the connection ended before it was confirmed."""
    open: list[Change] = field(default_factory=list)
    barriers: dict[int, list[Change]] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    read_at: dict[int, float] = field(default_factory=dict)
    connected: float | None = None

    def uses(self, switch_of_address: Mapping[int, Dpid]) -> Iterator[tuple[Dpid, int, GroupChange]]:
        """Yield (destination, group id, group) for each group that a flow leads to, also through another group."""
        found = set()
        for flow in self.flows.values():
            leads_to = switch_of_address.get(flow.ipv4_dst) if flow.ipv4_dst is not None else None
            for group_id in flow.groups if leads_to is not None else ():
                group = self.groups.get(group_id)
                for used in (group_id, *(group.groups if group else ())):
                    if (leads_to, used) not in found and used in self.groups:
                        found.add((leads_to, used))
                        assert leads_to is not None
                        yield leads_to, used, self.groups[used]


class PortStatus(NamedTuple):
    at: float
    dpid: Dpid
    port: PortNo
    deleted: bool


class Observed:
    """Rebuilt state of the switches in ``dpids``; messages of other switches are ignored."""

    def __init__(self, dpids: tuple[Dpid, ...]) -> None:
        self.switches: dict[Dpid, SwitchState] = {dpid: SwitchState() for dpid in dpids}
        self.changes: list[Change] = []
        self.ports: list[PortStatus] = []
        self.errors: list[tuple[float, Dpid, int, int]] = []

    def message(self, at: float, dpid: Dpid, data: bytes) -> None:
        switch = self.switches.get(dpid)
        if switch is None:
            return
        kind, xid = data[1], xid_of(data)
        if kind == Type.GROUP_MOD:
            self._group(at, dpid, switch, group_change(data))
        elif kind == Type.FLOW_MOD:
            self._flow(at, dpid, switch, flow_change(data))
        elif kind == Type.METER_MOD:
            self._changed(switch, Change(dpid, at, None))
        elif kind == Type.BARRIER_REQUEST:
            switch.barriers[xid], switch.open = switch.open, []
        elif kind == Type.BARRIER_REPLY:
            for change in switch.barriers.pop(xid, ()):
                change.confirmed = at
                if isinstance(change.what, GroupChange):
                    switch.in_doubt.discard(change.what.group_id)
        elif kind == Type.FEATURES_REPLY:
            self._connected(at, switch)
        elif kind == Type.PORT_STATUS:
            (port,) = struct.unpack_from("!I", data, 16)
            self.ports.append(PortStatus(at, dpid, PortNo(port), data[8] == OFPPR_DELETE))
        elif kind == Type.ERROR:
            self.errors.append((at, dpid, *struct.unpack_from("!HH", data, 8)))
        elif kind == Type.MULTIPART_REQUEST:
            switch.asked[xid] = multipart_kind(data)
        elif kind == Type.MULTIPART_REPLY:
            body, flags = struct.unpack_from("!HH", data, 8)
            if not flags & MORE and switch.asked.pop(xid, None) == body:
                switch.read_at[body] = at

    def _connected(self, at: float, switch: SwitchState) -> None:
        """Begin a new connection; requests of the old connection without a reply are lost."""
        switch.connected = at
        lost = [*switch.open, *chain.from_iterable(switch.barriers.values())]
        switch.in_doubt |= {change.what.group_id for change in lost if isinstance(change.what, GroupChange)}
        switch.open = []
        switch.barriers.clear()
        switch.asked.clear()
        switch.read_at.clear()

    def _changed(self, switch: SwitchState, change: Change) -> None:
        switch.open.append(change)
        self.changes.append(change)

    def _group(self, at: float, dpid: Dpid, switch: SwitchState, group: GroupChange) -> None:
        before = switch.groups.get(group.group_id)
        if not group.deleted:
            switch.groups[group.group_id] = group
        elif group.group_id == _ALL_GROUPS:
            switch.groups.clear()
        else:
            switch.groups.pop(group.group_id, None)
        self._changed(switch, Change(dpid, at, group, before))

    def _flow(self, at: float, dpid: Dpid, switch: SwitchState, flow: FlowChange) -> None:
        key = FlowId(flow.table, flow.priority, flow.match)
        before = switch.flows.get(key)
        if flow.deleted:
            switch.flows.pop(key, None)
        else:
            switch.flows[key] = flow
        self._changed(switch, Change(dpid, at, flow, before))

    # ---- for figures

    def pins(self) -> int:
        """Return the number of flows in the pinned table that lead to a group."""
        return sum(
            flow.table == Table.PINNED and bool(flow.groups)
            for switch in self.switches.values()
            for flow in switch.flows.values()
        )

    def last_connected(self) -> float | None:
        """Return when the last switch sent its features reply; None until all have."""
        times = [switch.connected for switch in self.switches.values()]
        return max(time for time in times if time is not None) if None not in times else None

    def read_back(self, since: float) -> float | None:
        """Return when the last switch had sent all flows and groups; None unless all did so at ``since`` or later."""
        read_at = [switch.read_at.get(body, 0.0) for switch in self.switches.values() for body in READ_BACK]
        return max(read_at) if min(read_at) >= since else None

    def ports_towards(self, switch_of_address: Mapping[int, Dpid]) -> dict[tuple[Dpid, Dpid], set[PortNo]]:
        """Return the output ports of all rules for a destination, by (switch, destination)."""
        found: dict[tuple[Dpid, Dpid], set[PortNo]] = defaultdict(set)
        for dpid, switch in self.switches.items():
            for destination, _, group in switch.uses(switch_of_address):
                found[dpid, destination].update(map(PortNo, group.ports))
            for flow in switch.flows.values():
                destination_of = switch_of_address.get(flow.ipv4_dst) if flow.ipv4_dst is not None else None
                if destination_of is not None and destination_of != dpid:
                    found[dpid, destination_of].update(map(PortNo, flow.ports))
        return found
