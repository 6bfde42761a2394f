"""Table 1: one rule per announced virtual link and direction: a pin to a path group, or a counter in front of ECMP.

A pin stands only where a choice exists; the acknowledgements of a pinned flow are pinned to the same cables backwards.
A flow without a pin still has its counting rule at the source's switch, so that a job's own bytes are known under
ECMP too. A path group is the planned next hop with the ECMP group of the same destination as its fast failover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from controller.fabric.topology import Dpid, Fabric, LinkId, Path, PortNo
from controller.planning.problem import FlowId
from controller.tables.rules import (
    ETH_IPV4,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    Output,
    Prefix,
    Table,
    ToGroup,
    cookie,
)

PIN_PRIORITY = 100

GroupId = Callable[[PortNo], int]


@dataclass(frozen=True, slots=True)
class Pin:
    """One direction of one virtual link. ``owner``: the job's 40-bit hash. ``path`` None: counted, not pinned."""

    flow: FlowId
    owner: int
    path: Path | None


def pin_key(flow: FlowId) -> FlowKey:
    """The table-1 entry of a (source, destination) pair."""
    match = Match(eth_type=ETH_IPV4, ipv4_src=Prefix(flow.src_ip), ipv4_dst=Prefix(flow.dst_ip))
    return FlowKey(Table.PINNED, PIN_PRIORITY, match)


def reverse_path(fabric: Fabric, path: Path) -> Path | None:
    """The same cables the other way; None when one of them is not usable now."""
    back: list[LinkId] = []
    for link_id in reversed(path):
        link = fabric.links.get(link_id)
        if link is None:
            return None
        back.append(LinkId(link.dst.dpid, link.dst.port))
    return tuple(back)


def both_directions(
    routes: Mapping[FlowId, Path | None], backwards: Mapping[Path, Path], owner_of: Mapping[FlowId, int]
) -> Iterator[Pin]:
    """Every announced virtual link and its acknowledgements. A direction that is announced itself follows its own
    route; acknowledgements ride on it. ``backwards``: the cables of each path the other way."""
    for flow, path in routes.items():
        yield Pin(flow, owner_of[flow], path)
        back = FlowId(flow.dst_ip, flow.src_ip)
        if back not in routes:
            yield Pin(back, owner_of[flow], backwards.get(path) if path else None)


def path_group(group_id: int, port: PortNo, usable: bool, ecmp_group_id: int, distance: int) -> GroupRule:
    """The planned next hop first, while it leads to the destination; then whatever ECMP has left."""
    fallback = Bucket(ToGroup(ecmp_group_id), watch_group=ecmp_group_id)
    planned = (Bucket(Output(port), watch_port=port),) if usable else ()
    return GroupRule(group_id, "fast_failover", (*planned, fallback), distance)


def pin_rule(pin: Pin, here: Dpid, next_hops: Mapping[Dpid, tuple[LinkId, ...]], group_id: GroupId) -> FlowRule | None:
    """The table-1 entry of a pin on one switch, None where the default table is left to decide.

    The source's switch always has one; others on the path only where the default table would choose another way.
    ``next_hops``: towards the destination's switch. ``group_id``: of the path group out of a port.
    """
    key, ours = pin_key(pin.flow), cookie(Table.PINNED, pin.owner)
    for index, hop in enumerate(pin.path or ()):
        if hop.dpid == here and (index == 0 or next_hops.get(here, ()) != (hop,)):
            distance = len(pin.path or ()) - index
            return FlowRule(key, ours, (ToGroup(group_id(hop.port)),), distance=distance)
    return None


def counting_rule(pin: Pin) -> FlowRule:
    """Counts in front of ECMP at the source's switch."""
    return FlowRule(pin_key(pin.flow), cookie(Table.PINNED, pin.owner), goto=Table.DEFAULT)


def miss_rule() -> FlowRule:
    """What nobody announced goes to the default table."""
    return FlowRule(FlowKey(Table.PINNED, 0, Match()), cookie(Table.PINNED), goto=Table.DEFAULT)
