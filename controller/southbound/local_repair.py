"""Local repair: removes next hops that lead nowhere, while this southbound has no link to a control loop. Sans-IO.

In: changes of ports, replies, breaks of the link, the time (``now``, monotonic seconds). Out: requests and changes of
groups.

When a spine loses its last cable to a leaf, other leaves do not notice, and still send packets for that leaf to the
spine. So this southbound reads the groups of a switch that has lost a port, even a switch of another master. On its own
switches, this southbound then removes the next hops that no longer lead to their destination
(docs/explanation/several-controllers.md#local-repair).

A switch is changed only if it has confirmed this member as its master with the newest known generation id. After the
claim of a newer holder, the switch itself refuses changes (``tests/model``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.southbound import openflow_encode as encode
from controller.southbound.connection import Connection
from controller.southbound.framework import ofp
from controller.southbound.limits import limited_log
from controller.southbound.multipart import Gathered, Requests
from controller.tables.rules import Bucket, GroupRule, RuleMod, ecmp_group_id

BEFORE_S = 60.0
"""Seconds before the link to the control loop broke. Ports that changed in these seconds are examined too, because the
control loop may not have reacted to the changes."""
READ_S = 2.0
"""Seconds after which the groups of a switch that has not answered are requested again."""
MOST_BYTES = 1 << 22
"""Largest number of bytes of the groups of a switch. Further groups are ignored."""

Groups = Mapping[int, GroupRule]
NO_GROUPS: Groups = {}


class Switches(Protocol):
    """Connections of all switches, even those whose master is another controller (``Admission``)."""

    @property
    def connected(self) -> frozenset[Dpid]: ...
    def connection(self, dpid: Dpid) -> Connection | None: ...
    def is_master(self, dpid: Dpid) -> bool: ...


class LocalRepair(Requests):
    """Local repair of one southbound.

    ``links``: function that returns the links out of the switches of this member."""

    def __init__(self, switches: Switches, links: Callable[[], Iterable[tuple[PortRef, PortRef]]]) -> None:
        super().__init__(self._send_to)
        self._switches = switches
        self._links = links
        self._since: float | None = None
        """Time at which the link to the control loop broke; None while the link works."""
        self._changed: dict[Dpid, float] = {}
        self._groups: dict[Dpid, Groups] = {}
        """Groups of each switch, as they were when first read after the link broke."""
        self._narrowed: dict[Dpid, Groups] = {}
        """Changed groups, without useless next hops, that were sent to each switch."""
        self._lost: dict[Dpid, frozenset[int]] = {}
        """Groups without a usable next hop, by switch."""

    def broken(self, now: float) -> None:
        """Begin local repair, because the link to the control loop is broken."""
        if self._since is None:
            self._since = now
            self._request_and_send(now)

    def linked(self) -> None:
        """End local repair: a control loop is linked, and reads all rules."""
        self._since = None
        self._asked.clear()
        self._groups.clear()
        self._narrowed.clear()
        self._lost.clear()

    def port_changed(self, dpid: Dpid, now: float) -> None:
        self._changed[dpid] = now
        self._request_and_send(now)

    def switch_left(self, dpid: Dpid) -> None:
        """Forget the groups of a switch, because its connection has ended, or another holder may change them."""
        super().switch_left(dpid)
        self._groups.pop(dpid, None)
        self._narrowed.pop(dpid, None)
        if self._since is None:
            self._changed.pop(dpid, None)

    def tick(self, now: float) -> None:
        for dpid in [dpid for dpid, asked in self._asked.items() if asked.until <= now]:
            del self._asked[dpid]
        self._request_and_send(now)

    def _send_to(self, dpid: Dpid, /, *messages: bytes) -> list[int]:
        connection = self._switches.connection(dpid)
        return connection.send(*messages) if connection else []

    def _read(self, dpid: Dpid, now: float) -> None:
        if dpid not in self._groups and dpid not in self._asked and self._switches.connection(dpid):
            requests = {ofp.OFPMP_GROUP_DESC: encode.all_request(ofp.OFPMP_GROUP_DESC)}
            self.ask(dpid, requests, now, now + READ_S, lambda _, size: size <= MOST_BYTES)

    def _finish(self, dpid: Dpid, asked: Gathered) -> None:
        del self._asked[dpid]
        self._groups[dpid] = {group.group_id: group for part in asked.of(ofp.OFPMP_GROUP_DESC) for group in part}
        if not self._asked:  # otherwise the next tick looks at all replies together
            self._request_and_send(asked.at)

    # ---- repair

    def _request_and_send(self, now: float) -> None:
        if self._since is None:
            return
        into: defaultdict[Dpid, list[PortRef]] = defaultdict(list)
        for src, dst in self._links():
            into[dst.dpid].append(src)
        useless: defaultdict[Dpid, defaultdict[int, set[PortNo]]] = defaultdict(lambda: defaultdict(set))
        ours = {ecmp_group_id(dpid) for dpid in self._switches.connected}
        waiting = [dpid for dpid, at in self._changed.items() if at >= self._since - BEFORE_S]
        seen: set[tuple[Dpid, int]] = set()
        while waiting:
            dpid = waiting.pop()
            self._read(dpid, now)
            for group_id in self._groups_without_next_hop(dpid, useless[dpid]):
                if group_id in ours and (dpid, group_id) not in seen:
                    seen.add((dpid, group_id))
                    for at in into[dpid]:
                        useless[at.dpid][group_id].add(at.port)
                        waiting.append(at.dpid)
        for dpid in useless.keys() | self._narrowed.keys():
            if self._switches.is_master(dpid) and dpid in self._groups:
                self._send_narrowed(dpid, useless[dpid])

    def _groups_without_next_hop(self, dpid: Dpid, useless: Mapping[int, set[PortNo]]) -> frozenset[int]:
        """Return the groups without a usable next hop; for a disconnected switch, those known last.

        ``useless``: ports behind which the destination cannot be reached, by group."""
        if dpid in self._groups and self._switches.connection(dpid):
            self._lost[dpid] = frozenset(
                group_id
                for group_id, group in self._groups[dpid].items()
                if group.kind == "select"
                and not any(self._is_usable(dpid, bucket, useless.get(group_id, ())) for bucket in group.buckets)
            )
        return self._lost.get(dpid, frozenset())

    def _is_usable(self, dpid: Dpid, bucket: Bucket, useless: Iterable[PortNo]) -> bool:
        """Return whether packets of this bucket reach the destination, as far as is known."""
        connection = self._switches.connection(dpid)
        port = connection.ports.get(bucket.watch_port) if connection and bucket.watch_port is not None else None
        return bucket.watch_port is None or bool(port and port.up and port.number not in useless)

    def _send_narrowed(self, dpid: Dpid, useless: Mapping[int, set[PortNo]]) -> None:
        """Send groups without their useless next hops.

        A group that would become empty is not changed. A path group always keeps its last bucket, which sends to the
        group of all next hops."""
        groups, before = self._groups[dpid], self._narrowed.get(dpid, NO_GROUPS)
        wanted: dict[int, GroupRule] = {}
        for group in groups.values():
            to = {group.group_id, *(bucket.watch_group for bucket in group.buckets)}
            ports = {port for group_id in useless.keys() & to for port in useless[group_id]}
            left = tuple(bucket for bucket in group.buckets if bucket.watch_port not in ports)
            if left != group.buckets and any(self._is_usable(dpid, bucket, ()) for bucket in left):
                wanted[group.group_id] = GroupRule(group.group_id, group.kind, left, group.distance)
        changes = [
            RuleMod("modify", wanted.get(group_id, groups[group_id]))
            for group_id in wanted.keys() | before.keys()
            if wanted.get(group_id) != before.get(group_id)
        ]
        if changes:
            self._narrowed[dpid] = wanted
            self._send(dpid, *map(encode.mod_message, changes))
            what = "no link to the control loop: next hops changed because of lost cables elsewhere"
            limited_log.warning(what, dpid=f"{dpid:#x}", groups=len(changes))
