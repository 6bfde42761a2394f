"""Table 1: one rule per announced virtual link and direction: a pin to a path group, or a counter in front of ECMP.

A path group is the planned next hop with the ECMP group of the same destination as its fast failover. Acknowledgements
of a pinned flow are pinned to the same cables backwards. A flow that is split has a pin per subflow, told apart by
ports, over the rule of the whole flow. Pairs that are learnt are counted below all pins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from controller.fabric.recent_uses import Counted
from controller.fabric.topology import Dpid, Fabric, LinkId, Path, PortNo
from controller.planning.problem import FlowId, Route
from controller.tables.rules import (
    ETH_IPV4,
    IP_TCP,
    IP_UDP,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    Output,
    RuleSet,
    Table,
    ToGroup,
    cookie,
    host_prefix,
    learning_cookie,
)
from signalbox.jobs.spec import ROCE_PORT, Transport
from signalbox.jobs.subflows import PortClass, exactly

PIN_PRIORITY = 100
LEARNING_PRIORITY = 50

_TO_ROCE = exactly(ROCE_PORT)

GroupId = Callable[[PortNo], int]


class Part(NamedTuple):
    """Some of a flow's packets: those from one class of source ports, to one class of destination ports where that is
    given, or ``answers`` to these. RoCEv2 answers come from the same class: both ends of a queue pair derive the source
    port from the same flow label."""

    transport: Transport
    ports: PortClass
    answers: bool = False
    dst_ports: PortClass | None = None

    @property
    def bits(self) -> int:
        """Of the ports that are matched: the more, the more specific."""
        return self.ports.mask.bit_count() + (self.dst_ports.mask.bit_count() if self.dst_ports else 0)


class Announcement(NamedTuple):
    """What rules need to know of one pair of a job. ``owner``: the job's 40-bit hash. ``parts``: of each subflow or
    piece that the flow can have, none when it stays whole. ``alone``: the job has the rule for all packets of the
    pair, else only rules for its parts."""

    owner: int
    parts: tuple[tuple[Part, ...], ...]
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Pin:
    """One direction of one virtual link, or of a ``part`` of it. ``path`` None: counted, not pinned. ``learning``: it
    is not announced, and counted to learn whether it carries traffic. ``pieces``: that have no pins of their own
    because they take this one, when these are not ``flow`` alone. ``key``: of its table-1 entry."""

    flow: FlowId
    owner: int
    path: Path | None
    part: Part | None = None
    learning: bool = False
    pieces: tuple[FlowId, ...] = ()
    key: FlowKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        key = pin_key(self.flow, self.part)
        object.__setattr__(self, "key", key._replace(priority=LEARNING_PRIORITY) if self.learning else key)

    @property
    def flows(self) -> tuple[FlowId, ...]:
        """Whose packets it is for."""
        return self.pieces or (self.flow,)


def pin_key(flow: FlowId, part: Part | None = None) -> FlowKey:
    """The table-1 entry of a (source, destination) pair, or of a part of its packets, which wins over it."""
    match = Match(eth_type=ETH_IPV4, ip_src=host_prefix(flow.src_ip), ip_dst=host_prefix(flow.dst_ip))
    if part is None:
        return FlowKey(Table.PINNED, PIN_PRIORITY, match)
    if part.transport is Transport.ROCE_V2:
        match = match._replace(ip_proto=IP_UDP, src_port=part.ports, dst_port=_TO_ROCE)
    elif part.answers:
        match = match._replace(ip_proto=IP_TCP, src_port=part.dst_ports, dst_port=part.ports)
    else:
        match = match._replace(ip_proto=IP_TCP, src_port=part.ports, dst_port=part.dst_ports)
    return FlowKey(Table.PINNED, PIN_PRIORITY + part.bits, match)


def read_pin_key(key: FlowKey) -> tuple[FlowId, Part | None] | None:
    """What ``pin_key`` made the entry for; None when it did not make it. Answers read as what they answer to where the
    entries are the same: of RoCEv2, and between two ports."""
    match = key.match
    if key.table != Table.PINNED or match.ip_src is None or match.ip_dst is None:
        return None
    flow = FlowId(match.ip_src.address, match.ip_dst.address)
    part = None
    if match.ip_proto == IP_UDP and match.src_port:
        part = Part(Transport.ROCE_V2, match.src_port)
    elif match.ip_proto == IP_TCP and match.src_port:
        part = Part(Transport.TCP, match.src_port, dst_ports=match.dst_port)
    elif match.ip_proto == IP_TCP and match.dst_port:
        part = Part(Transport.TCP, match.dst_port, answers=True)
    return (flow, part) if pin_key(flow, part) == key else None


def counted(key: FlowKey) -> Counted | None:
    """What the entry's byte counter counts; None when it is no entry of a flow."""
    match = key.match
    if key.table != Table.PINNED or match.ip_src is None or match.ip_dst is None:
        return None
    part: Hashable = (match.src_port, match.dst_port) if match.ip_proto is not None else None
    if key.priority == LEARNING_PRIORITY:
        part = LEARNING_PRIORITY
    return Counted(match.ip_src.address, match.ip_dst.address, part)


def reverse_path(fabric: Fabric, path: Path) -> Path | None:
    """The same cables the other way; None when one of them is not usable now."""
    back: list[LinkId] = []
    for link_id in reversed(path):
        link = fabric.links.get(link_id)
        if link is None:
            return None
        back.append(LinkId(link.dst.dpid, link.dst.port))
    return tuple(back)


class Way(NamedTuple):
    """One flow: how it is routed, and the cables of each subflow's path the other way."""

    flow: FlowId
    route: Route | None
    back: tuple[Path | None, ...]


def both_directions(ways: Sequence[Way], announced: Announcement, answered: bool) -> tuple[Pin, ...]:
    """An announced virtual link, in pieces where it has any (``ways``), and its acknowledgements, which ride on it,
    unless another announcement covers them (``answered``)."""
    owner, parts, alone = announced
    paths = [(way.flow, [path for path, _ in way.route or ()]) for way in ways]
    pins = tuple(_one_direction(paths, owner, parts, alone))
    if answered:
        return pins
    answers = tuple(tuple(part._replace(answers=True) for part in bundle) for bundle in parts)
    return pins + tuple(_one_direction([(way.flow.back, way.back) for way in ways], owner, answers, alone))


def _one_direction(
    flows: Sequence[tuple[FlowId, Sequence[Path | None]]], owner: int, parts: Sequence[tuple[Part, ...]], alone: bool
) -> Iterator[Pin]:
    """Rules for all packets of the pair where one does; else one for each part, above a rule for the rest. That one
    only counts, unless the flow is in equal pieces: then it pins those that share a path, and no others have a rule."""
    pieces = [(flow, path) for flow, paths in flows for path in paths or (None,)]
    whole = len(pieces) == 1
    common = pieces[0][1] if whole else _common_path([path for _, path in pieces]) if len(flows) > 1 else None
    if alone:
        together = () if whole or common is None else tuple(flow for flow, path in pieces if path == common)
        yield Pin(pieces[0][0], owner, common, pieces=together)
        if whole:
            return
    bundles = [tuple(part for bundle in parts for part in bundle)] if whole else parts
    for (flow, path), bundle in zip(pieces, bundles, strict=False):
        if not alone or path not in (None, common):
            for part in bundle:
                yield Pin(flow, owner, path, part)


def _common_path(paths: Sequence[Path | None]) -> Path | None:
    """That most of them are, the first of several; None where no two are alike."""
    times = Counter(path for path in paths if path is not None)
    path, most = max(times.items(), key=itemgetter(1), default=(None, 0))
    return path if most > 1 else None


@lru_cache(maxsize=1 << 16)
def path_group(group_id: int, port: PortNo, usable: bool, ecmp_group_id: int, distance: int) -> GroupRule:
    """The planned next hop first, while it leads to the destination; then whatever ECMP has left."""
    fallback = Bucket(ToGroup(ecmp_group_id), watch_group=ecmp_group_id)
    planned = (Bucket(Output(port), watch_port=port),) if usable else ()
    return GroupRule(group_id, "fast_failover", (*planned, fallback), distance)


def pin_rule(pin: Pin, here: Dpid, next_hops: tuple[LinkId, ...], group_id: GroupId) -> FlowRule | None:
    """The table-1 entry of a pin on one switch, None where the default table is left to decide.

    The source's switch always has one; others on the path only where the default table would choose another way.
    ``next_hops``: here, towards the destination's switch. ``group_id``: of the path group out of a port.
    """
    for index, hop in enumerate(pin.path or ()):
        if hop.dpid == here and (index == 0 or next_hops != (hop,)):
            ours = cookie(Table.PINNED, pin.owner)
            distance = len(pin.path or ()) - index
            return FlowRule(pin.key, ours, (ToGroup(group_id(hop.port)),), distance=distance)
    return None


def counting_rule(pin: Pin, distance: int) -> FlowRule:
    """Counts in front of ECMP at the source's switch. ``distance``: from there, so that a pin is not given up before
    the subflows that take its place have their rules."""
    ours = learning_cookie(pin.owner) if pin.learning else cookie(Table.PINNED, pin.owner)
    return FlowRule(pin.key, ours, goto=Table.DEFAULT, distance=distance)


def on_ecmp(rules: RuleSet, missing: Collection[int]) -> RuleSet:
    """The rules of a switch that cannot have the groups ``missing``: pins to them only count and leave the choice to
    the default table. The same object when there are none."""
    counting = {
        key: FlowRule(key, rule.cookie, goto=Table.DEFAULT, distance=rule.distance)
        for key, rule in (rules.flows.items() if missing else ())
        if key.table == Table.PINNED and any(isinstance(a, ToGroup) and a.group_id in missing for a in rule.actions)
    }
    return replace(rules, flows={**rules.flows, **counting}) if counting else rules


def miss_rule() -> FlowRule:
    """Packets of no announced flow go to the default table."""
    return FlowRule(FlowKey(Table.PINNED, 0, Match()), cookie(Table.PINNED), goto=Table.DEFAULT)
