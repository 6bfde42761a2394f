"""Converter for the fabric: switches, links, hosts, drains, parts that are down, dropped packets.

Pure. A conversion takes time linear in the number of parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from controller.fabric.parts import Part
from controller.fabric.topology import Dpid, Host, Link, LinkId, Switch
from controller.status import DrainStatus, Status, SwitchStatus
from controller.tables.flow_tables import Dropped
from controller.tables.rules import OtherTable, Table
from signalbox.mapping import (
    message_of,
    number_of,
    timestamp,
)
from signalbox.v1 import signalbox_pb2 as pb


def fabric_message(
    status: Status, late: frozenset[Dpid] = frozenset(), holders: Mapping[Dpid, str] | None = None
) -> pb.GetFabricResponse:
    """Return the answer of ``GetFabric``: switches ordered by dpid, links and hosts ordered by port.

    ``late``: switches whose counters are out of date, as for ``rates``. ``holders``: name of the member that each
    switch has confirmed as its master; None if the switches are not divided."""
    fabric, known = status.fabric, rates(status, late)
    return pb.GetFabricResponse(
        generation=fabric.generation,
        switches=[
            switch_message(switch, status.switches.get(dpid), None if holders is None else holders.get(dpid, ""))
            for dpid, switch in sorted(fabric.switches.items())
        ],
        links=[
            link_message(link, fabric.link_name(link_id), *known(link_id))
            for link_id, link in sorted(fabric.links.items())
        ],
        hosts=[
            host_message(host, fabric.name(host.at.dpid))
            for host in sorted(fabric.hosts.values(), key=lambda host: host.at)
        ],
        drains=drains(status),
        parts_down=[
            down_message(part) for part in sorted(status.down_parts.values(), key=lambda part: (part.kind, part.name))
        ],
        dropped=_dropped(status),
        optical_switches=[
            message_of(pb.OpticalSwitch, each, dpid=dpid) for dpid, each in sorted(status.extension.switches.items())
        ],
    )


def down_message(part: Part) -> pb.DownPart:
    return message_of(pb.DownPart, part, id=part.key.id, down_time=timestamp(part.down_since or 0.0))


def drains(status: Status) -> list[pb.DrainedPart]:
    """Return the drained parts, ordered by name."""
    return [drain_message(drain) for _, drain in sorted(status.drains.items())]


def drain_message(drain: DrainStatus) -> pb.DrainedPart:
    return message_of(pb.DrainedPart, drain, drain_time=timestamp(drain.since))


def switch_message(switch: Switch, known: SwitchStatus | None, holder: str | None = None) -> pb.Switch:
    """Return the message of a switch; ``known`` is None before its rules have been read."""
    known = known or SwitchStatus(in_sync=False, rules=0, foreign_rules=0)
    return message_of(
        pb.Switch,
        known,
        dpid=switch.dpid,
        name=switch.name,
        holder=holder,
        ports=[message_of(pb.Port, port) for _, port in sorted(switch.ports.items())],
        tables=[message_of(pb.FlowTable, use) for use in known.tables if isinstance(use.table, Table)],
        other_tables=[message_of(pb.OtherTable, use) for use in known.tables if isinstance(use.table, OtherTable)],
    )


def host_message(host: Host, switch: str) -> pb.Host:
    """Return the message of a host; ``switch`` is the name of the switch that it is attached to."""
    return message_of(pb.Host, host, mac=host.mac or "", switch_name=switch)


def link_message(link: Link, name: str, rate_bps: float | None = None, background_bps: float | None = None) -> pb.Link:
    """Return the message of a link.

    ``name``: name of the link, such as ``leaf1:5>spine2``. ``rate_bps``, ``background_bps``: see ``Rates``."""
    return message_of(pb.Link, link, name=name, rate_bps=rate_bps, background_bps=background_bps)


def _dropped(status: Status) -> list[pb.DroppedPackets]:
    return [
        pb.DroppedPackets(
            dpid=dpid,
            switch_name=status.fabric.name(dpid),
            kind=number_of(pb.DroppedKind.DESCRIPTOR, kind),
            packets=status.dropped_packets[dpid][kind],
        )
        for dpid in sorted(status.dropped_packets.keys() & status.fabric.switches.keys())
        for kind in Dropped
        if status.dropped_packets[dpid].get(kind)
    ]


Rates = tuple[float | None, float | None]
"""Rate of all traffic, and rate of background traffic, in bit/s. A rate is None before the first measurement and while
counters are out of date."""


def rates(status: Status, late: frozenset[Dpid]) -> Callable[[LinkId], Rates]:
    """Return a function that returns the rates of a link.

    ``late``: switches whose counters are out of date, from ``Status.late_ports``."""
    links = status.links

    def of(link: LinkId) -> Rates:
        figures = None if link.dpid in late else links.get(link)
        return (figures.rate_bps, figures.background_bps) if figures else (None, None)

    return of
