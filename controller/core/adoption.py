"""When what switches hold counts for more than what the controller knows: after a start, and after many switches left.

After a start nothing is known, so nothing is deleted or narrowed until every link that installed rules name has been
seen, or no further switch has connected for ``adoption_patience_s``. Rules that lead to unknown hosts stay for one
lease more (docs/architecture.md).

A switch that dies takes its ports down, and its neighbours report that at once. A connection may also end because of
the control network, while packets still flow; then many connections end together. So the links of a switch are given
up ``GRACE_S`` after its connection ended. When a large part of the fabric leaves together, nothing is given up, and
what the switches hold is adopted when they are back. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from controller.fabric.topology import Dpid, Fabric, LinkId, PortNo
from controller.tables.adoption import installed_fabric_ports
from controller.tables.rules import RuleSet

GRACE_S = 0.1
TOGETHER_S = 1.0
MANY_FRACTION = 0.25
MANY_AT_LEAST = 3


class Adoption:
    """``unknown_kept_until``: monotonic seconds until which rules that lead to unknown hosts are kept; infinite until
    the first adoption is over, minus infinite after that lease. ``expects_rules``: the saved state shows that this is a
    restart."""

    def __init__(self, patience_s: float, orphan_lease_s: float, expects_rules: bool, now: float) -> None:
        self.unknown_kept_until = math.inf
        self._patience_s = patience_s
        self._orphan_lease_s = orphan_lease_s
        self._expects_rules = expects_rules
        self._since = now
        self._connected_since: set[Dpid] = set()
        self._read: set[Dpid] = set()

    @property
    def is_first(self) -> bool:
        """The lease that began with the first adoption is not over."""
        return self.unknown_kept_until > -math.inf

    def begin(self, now: float) -> None:
        self._since = now
        self._connected_since.clear()

    def switch_connected(self, dpid: Dpid, now: float) -> None:
        """Others may follow: the patience begins anew. A switch that connects again and again counts once."""
        if dpid not in self._connected_since:
            self._connected_since.add(dpid)
            self._since = now

    def rules_read(self, dpid: Dpid, rules: RuleSet, now: float) -> bool:
        """Whether another adoption has to begin: a switch that is read for the first time holds rules that others may
        depend on, and the lease of the first adoption is not over."""
        late = dpid not in self._read
        self._read.add(dpid)
        return late and bool(rules.flows) and now < self.unknown_kept_until

    def is_complete(self, fabric: Fabric, installed: Mapping[Dpid, RuleSet], all_read: bool, now: float) -> bool:
        """Whether what the switches hold can be adopted: every link that rules name has been seen, or the patience is
        over. ``installed``: of every switch that was read; ``all_read``: these are all that are connected. After a
        restart empty switches are not complete: the others with rules are still to come."""
        held = {dpid: installed_fabric_ports(rules) for dpid, rules in installed.items()}
        links_seen = all(
            LinkId(dpid, port) in fabric.links or not _is_up(fabric, dpid, port)
            for dpid, ports in held.items()
            for port in ports
        )
        complete = all_read and links_seen and (any(held.values()) or not self._expects_rules)
        return complete or now >= self._since + self._patience_s

    def end(self, now: float) -> None:
        if self.unknown_kept_until == math.inf:
            self.unknown_kept_until = now + self._orphan_lease_s

    def lease_over(self, now: float) -> bool:
        """True once, when rules that no registered job has claimed need not be kept any more."""
        over = -math.inf < self.unknown_kept_until <= now
        if over:
            self.unknown_kept_until = -math.inf
        return over


class Departures:
    """Switches whose connection has ended and whose links are not given up yet. ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self._waiting: dict[Dpid, float] = {}
        self._left_at: dict[Dpid, float] = {}

    def left(self, dpid: Dpid, fabric: Fabric, now: float) -> bool:
        """Whether a large part of the ``fabric``, which still has this switch, has left together. A switch without a
        link does not count: one that connects and leaves again and again could otherwise stop all planning."""
        self._waiting[dpid] = now
        self._left_at = {dpid: at for dpid, at in self._left_at.items() if at > now - TOGETHER_S}
        if not any(link.dpid == dpid for link in fabric.links):
            return False
        self._left_at[dpid] = now
        return len(self._left_at) >= max(MANY_AT_LEAST, MANY_FRACTION * len(fabric.switches))

    @property
    def waiting(self) -> bool:
        """Some switches have left and are not given up yet."""
        return bool(self._waiting)

    def returned(self, dpid: Dpid) -> None:
        self._waiting.pop(dpid, None)

    def due(self, now: float) -> list[Dpid]:
        """The switches to give up now."""
        due = [dpid for dpid, at in self._waiting.items() if at <= now - GRACE_S]
        for dpid in due:
            del self._waiting[dpid]
        return due


def _is_up(fabric: Fabric, dpid: Dpid, port: PortNo) -> bool:
    switch = fabric.switches.get(dpid)
    return switch is not None and port in switch.ports and switch.ports[port].up
