"""Names of the parts of a fabric for people and files: numbers for hosts, names for switches, paths as text.

In: the fabric without failures, so that no number depends on what failed. Out: text. ``Numbering`` says how nodes are
numbered.
"""

from __future__ import annotations

from functools import cached_property

from controller.fabric.topology import Dpid, Fabric, LinkId, Path
from controller.offline.fabrics import parallel_cables
from controller.offline.workloads import Numbering
from controller.planning.analysis.requests import FabricNames


class Names(FabricNames):
    """Names of one fabric."""

    def __init__(self, intact: Fabric) -> None:
        super().__init__(intact)
        self.numbering = Numbering(intact)

    def host(self, ip: str) -> int:
        """The host's number in workload files. Raises ``KeyError`` for a foreign address."""
        return self.numbering.host_of[ip]

    def path(self, src_leaf: Dpid, path: Path) -> str:
        """``leaf14>spine3>leaf5``, or ``leaf14`` alone for a path inside it. Where a switch has several cables to the
        next one, it says which is taken, counted from 0: ``leaf14:1>spine3:0>leaf5``."""
        hops = [self._hop(link) for link in path]
        end = self._fabric.links[path[-1]].dst.dpid if path else src_leaf
        return ">".join([*hops, self.switch(end)])

    def link(self, link_id: LinkId) -> str:
        """``leaf5>spine2`` (``leaf5:1>spine2`` with several cables); ``544>leaf14`` and ``leaf14>544`` at the edge."""
        link = self._fabric.links.get(link_id)
        if link:
            return f"{self._hop(link_id)}>{self.switch(link.dst.dpid)}"
        ends = [str(self._host_at[link_id]), self.switch(link_id.dpid)]
        return ">".join(ends if link_id.direction == "in" else ends[::-1])

    def _hop(self, link_id: LinkId) -> str:
        link = self._fabric.links[link_id]
        cables = self._cables[link.src.dpid, link.dst.dpid]
        number = f":{cables.index(link_id)}" if len(cables) > 1 else ""
        return f"{self.switch(link.src.dpid)}{number}"

    @cached_property
    def _cables(self) -> dict[tuple[Dpid, Dpid], tuple[LinkId, ...]]:
        return dict(parallel_cables(self._fabric))

    @cached_property
    def _host_at(self) -> dict[LinkId, int]:
        hosts = self._fabric.hosts.values()
        return {link: self.host(host.ip) for host in hosts for link in (host.uplink, host.downlink)}
