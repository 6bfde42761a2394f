"""How long a started controller leaves the switches' rules alone: until the picture is complete.

After a start nothing is known yet, so nothing is deleted or narrowed until every link that installed rules name has
been seen, or nobody new has connected for ``adoption_patience_s``; and rules that lead to unknown hosts stay for one
lease more (docs/architecture.md). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from controller.fabric.topology import Dpid, Fabric, LinkId, PortNo
from controller.tables.adoption import installed_fabric_ports
from controller.tables.rules import RuleSet


class Adopting:
    """``now``: nothing of what is installed may be given up yet. ``unknown_kept_until``: monotonic seconds, infinite
    until the first adoption is over. ``expects_rules``: the saved state says that this is a restart."""

    def __init__(self, patience_s: float, orphan_lease_s: float, expects_rules: bool, now: float) -> None:
        self.now = True
        self.unknown_kept_until = math.inf
        self._patience_s = patience_s
        self._orphan_lease_s = orphan_lease_s
        self._expects_rules = expects_rules
        self._since = now
        self._came: set[Dpid] = set()
        self._read: set[Dpid] = set()

    @property
    def first(self) -> bool:
        """The lease that began with the first adoption is not over."""
        return self.unknown_kept_until > -math.inf

    def begin(self, now: float) -> None:
        """What the switches do counts again, not what is known here."""
        self.now, self._since = True, now
        self._came.clear()

    def switch_connected(self, dpid: Dpid, now: float) -> None:
        """Others may follow; one that comes again and again renews nobody's patience."""
        if self.now and dpid not in self._came:
            self._came.add(dpid)
            self._since = now

    def rules_read(self, dpid: Dpid, rules: RuleSet, now: float) -> None:
        """A late switch with rules that others depend on begins another adoption; one that comes again does not."""
        late = dpid not in self._read
        self._read.add(dpid)
        if late and rules.flows and not self.now and now < self.unknown_kept_until:
            self.begin(now)

    def settle(self, fabric: Fabric, installed: Mapping[Dpid, RuleSet], all_read: bool, now: float) -> bool:
        """Whether the picture is complete, or waited for long enough; the adoption is over then. ``installed``: of
        every switch that was read back; ``all_read``: these are all that are connected. When the saved state says
        that this is a restart, empty switches are no complete picture."""
        held = {dpid: installed_fabric_ports(rules) for dpid, rules in installed.items()}
        links_seen = all(
            LinkId(dpid, port) in fabric.links or not _is_up(fabric, dpid, port)
            for dpid, ports in held.items()
            for port in ports
        )
        complete = all_read and links_seen and (any(held.values()) or not self._expects_rules)
        if not complete and now < self._since + self._patience_s:
            return False
        self.now = False
        if self.unknown_kept_until == math.inf:
            self.unknown_kept_until = now + self._orphan_lease_s
        return True

    def lease_over(self, now: float) -> bool:
        """True once, when rules that nobody claimed need not be kept any more."""
        over = not self.now and -math.inf < self.unknown_kept_until <= now
        if over:
            self.unknown_kept_until = -math.inf
        return over


def _is_up(fabric: Fabric, dpid: Dpid, port: PortNo) -> bool:
    switch = fabric.switches.get(dpid)
    return switch is not None and port in switch.ports and switch.ports[port].up
