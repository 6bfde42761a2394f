"""When an adoption is complete, and how long rules that lead to unknown hosts are kept. Pure.

In: switches that connect, what they hold. ``tables.adoption`` reads the running plan out of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from controller.fabric.topology import Dpid, Fabric, LinkId, PortNo
from controller.tables.adoption import installed_fabric_ports
from controller.tables.rules import RuleSet


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


def _is_up(fabric: Fabric, dpid: Dpid, port: PortNo) -> bool:
    switch = fabric.switches.get(dpid)
    return switch is not None and port in switch.ports and switch.ports[port].up
