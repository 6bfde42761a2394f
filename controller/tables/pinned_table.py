"""Table 1: a rule per announced virtual link and direction, which is a pin to a path group or a counter before ECMP.

A virtual link is the traffic from one host to another; in the opposite direction are its acknowledgements. A path group
has two fast-failover buckets: the planned next hop, and the ECMP group of the same destination. Acknowledgements of a
pinned flow are pinned to the same cables in the reverse direction. A split flow has a pin for each subflow, which
matches ports and has a higher priority than the rule of the whole flow. Rules that count pairs to learn about them have
a lower priority than all pins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from controller.fabric.counter_samples import Counted
from controller.fabric.topology import Dpid, Fabric, LinkId, Path, PortNo
from controller.planning.problem import FlowId, Route
from controller.tables.rules import (
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
    between,
    cookie,
    cookie_owner,
    learning_cookie,
)
from signalbox.jobs.spec import ROCE_PORT, Transport
from signalbox.jobs.subflows import PortClass, exactly

PIN_PRIORITY = 100
LEARNING_PRIORITY = 50

_TO_ROCE = exactly(ROCE_PORT)

GroupId = Callable[[PortNo], int]


class Part(NamedTuple):
    """Part of the packets of a flow, selected by ports.

    The packets have source ports of one class (``ports``) and, if given, destination ports of one class
    (``dst_ports``). With ``answers``, the part is instead the answers to such packets. RoCEv2 answers have source ports
    of the same class, because both ends of a queue pair derive the source port from the same flow label."""

    transport: Transport
    ports: PortClass
    answers: bool = False
    dst_ports: PortClass | None = None

    @property
    def bits(self) -> int:
        """Number of port bits that are matched; more bits are more specific."""
        return self.ports.mask.bit_count() + (self.dst_ports.mask.bit_count() if self.dst_ports else 0)


class Announcement(NamedTuple):
    """Properties of a job's pair that its rules need."""

    owner: int
    """40-bit hash of the job."""
    parts: tuple[tuple[Part, ...], ...]
    """Parts of each subflow into which the flow can be split; empty if the flow stays whole."""
    alone: bool = True
    """Whether the job owns the rule for all packets of the pair; otherwise it owns only rules for its parts."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Wanted rule of table 1 for one direction of a virtual link, or for a part of its packets."""

    flow: FlowId
    owner: int
    """Owner of the rule: 40-bit hash of the job."""
    path: Path | None
    """Planned path; None if the flow is only counted."""
    part: Part | None = None
    """Part of the flow's packets that the pin is for; None for all packets."""
    learning: bool = False
    """Whether the pair is not announced, but counted to learn whether it carries traffic."""
    subflows: tuple[FlowId, ...] = ()
    """Equal subflows that share this pin and have no pins of their own; empty if the pin serves only ``flow``."""
    key: FlowKey = field(init=False, repr=False, compare=False)
    """Key of the pin's entry in table 1."""

    def __post_init__(self) -> None:
        key = pin_key(self.flow, self.part)
        object.__setattr__(self, "key", key._replace(priority=LEARNING_PRIORITY) if self.learning else key)

    @property
    def flows(self) -> tuple[FlowId, ...]:
        """Flows that the pin serves."""
        return self.subflows or (self.flow,)


def pin_key(flow: FlowId, part: Part | None = None) -> FlowKey:
    """Return the key of the table-1 entry for a (source, destination) pair, or for a part of its packets.

    The entry of a part has a higher priority."""
    match = between(flow.src_ip, flow.dst_ip)
    if part is None:
        return FlowKey(Table.PINNED, PIN_PRIORITY, match)
    if part.transport is Transport.ROCE_V2:
        match = match._replace(ip_proto=IP_UDP, src_port=part.ports, dst_port=_TO_ROCE)
    elif part.answers:
        match = match._replace(ip_proto=IP_TCP, src_port=part.dst_ports, dst_port=part.ports)
    else:
        match = match._replace(ip_proto=IP_TCP, src_port=part.ports, dst_port=part.dst_ports)
    return FlowKey(Table.PINNED, PIN_PRIORITY + part.bits, match)


def read_pin(rule: FlowRule) -> Pin | None:
    """Return the pin from which the rule was made, without its path; None if the rule is not of an announced flow.

    Some pins for answers have the same key as pins for packets: for RoCEv2, and between two single ports. Such a key is
    read as a pin for packets."""
    match = rule.key.match
    if rule.key.table != Table.PINNED or match.ip_src is None or match.ip_dst is None:
        return None
    part = None
    if match.ip_proto == IP_UDP and match.src_port:
        part = Part(Transport.ROCE_V2, match.src_port)
    elif match.ip_proto == IP_TCP and match.src_port:
        part = Part(Transport.TCP, match.src_port, dst_ports=match.dst_port)
    elif match.ip_proto == IP_TCP and match.dst_port:
        part = Part(Transport.TCP, match.dst_port, answers=True)
    pin = Pin(FlowId(match.ip_src.address, match.ip_dst.address), cookie_owner(rule.cookie), None, part)
    return pin if pin.key == rule.key else None


def counted(key: FlowKey) -> Counted | None:
    """Return the traffic that the entry with this key counts, or None if the entry is not for a flow."""
    match = key.match
    if key.table != Table.PINNED or match.ip_src is None or match.ip_dst is None:
        return None
    part: Hashable = (match.src_port, match.dst_port) if match.ip_proto is not None else None
    if key.priority == LEARNING_PRIORITY:
        part = LEARNING_PRIORITY
    return Counted(match.ip_src.address, match.ip_dst.address, part)


def reverse_path(fabric: Fabric, path: Path) -> Path | None:
    """Return the path over the same cables in the reverse direction, or None when one of the cables is not usable."""
    back: list[LinkId] = []
    for link_id in reversed(path):
        link = fabric.links.get(link_id)
        if link is None:
            return None
        back.append(LinkId(link.dst.dpid, link.dst.port))
    return tuple(back)


class Way(NamedTuple):
    """Route of a flow, and the reverse path of each of its subflows."""

    flow: FlowId
    route: Route | None
    back: tuple[Path | None, ...]


def both_directions(ways: Sequence[Way], announced: Announcement, answered: bool) -> tuple[Pin, ...]:
    """Return the pins of an announced virtual link and of its acknowledgements.

    ``ways``: the flow, or its equal subflows. ``answered``: whether another announcement covers the
    acknowledgements."""
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
    """Yield one rule for all packets of the pair if that suffices, else a rule for each part and one for the rest.

    The rule for the remaining packets has a lower priority and only counts. If the flow has equal subflows, this rule
    instead pins the subflows that share a path, and only the other subflows have rules of their own."""
    subflows = [(flow, path) for flow, paths in flows for path in paths or (None,)]
    whole = len(subflows) == 1
    common = subflows[0][1] if whole else _common_path([path for _, path in subflows]) if len(flows) > 1 else None
    if alone:
        together = () if whole or common is None else tuple(flow for flow, path in subflows if path == common)
        yield Pin(subflows[0][0], owner, common, subflows=together)
        if whole:
            return
    bundles = [tuple(part for bundle in parts for part in bundle)] if whole else parts
    for (flow, path), bundle in zip(subflows, bundles, strict=False):
        if not alone or path not in (None, common):
            for part in bundle:
                yield Pin(flow, owner, path, part)


def _common_path(paths: Sequence[Path | None]) -> Path | None:
    """Return the most frequent path, the first of equally frequent paths; None if no two paths are equal."""
    times = Counter(path for path in paths if path is not None)
    path, most = max(times.items(), key=itemgetter(1), default=(None, 0))
    return path if most > 1 else None


@lru_cache(maxsize=1 << 16)
def path_group(group_id: int, port: PortNo, usable: bool, ecmp_group_id: int, distance: int) -> GroupRule:
    """Return the group with the planned next hop first, if it is ``usable``, and then the ECMP group.

    The planned next hop is usable while it leads to the destination."""
    fallback = Bucket(ToGroup(ecmp_group_id), watch_group=ecmp_group_id)
    planned = (Bucket(Output(port), watch_port=port),) if usable else ()
    return GroupRule(group_id, "fast_failover", (*planned, fallback), distance)


def pin_rule(pin: Pin, here: Dpid, next_hops: tuple[LinkId, ...], group_id: GroupId) -> FlowRule | None:
    """Return the table-1 entry of a pin on the switch ``here``, or None if its default table forwards the flow.

    The source's switch always has an entry. Other switches on the path have one only where the default table would
    choose another next hop. ``next_hops``: next hops of this switch to the destination's switch. ``group_id``: returns
    the id of the path group for a port."""
    for index, hop in enumerate(pin.path or ()):
        if hop.dpid == here and (index == 0 or next_hops != (hop,)):
            ours = cookie(Table.PINNED, pin.owner)
            distance = len(pin.path or ()) - index
            return FlowRule(pin.key, ours, (ToGroup(group_id(hop.port)),), distance=distance)
    return None


def counting_rule(pin: Pin, distance: int) -> FlowRule:
    """Return a rule that counts at the source's switch and leaves the choice of the next hop to ECMP.

    ``distance``: distance from the source's switch to the destination. It orders the installation, so that no pin is
    removed before the subflows that replace it have their rules."""
    ours = learning_cookie(pin.owner) if pin.learning else cookie(Table.PINNED, pin.owner)
    return FlowRule(pin.key, ours, goto=Table.DEFAULT, distance=distance)


def on_ecmp(rules: RuleSet, missing: Collection[int]) -> RuleSet:
    """Return the rules with counting rules in place of pins to ``missing`` groups; the same object if none is missing.

    The switch cannot have these groups, so its default table forwards the flows."""
    counting = {
        key: FlowRule(key, rule.cookie, goto=Table.DEFAULT, distance=rule.distance)
        for key, rule in (rules.flows.items() if missing else ())
        if key.table == Table.PINNED and rule.group_id in missing
    }
    return replace(rules, flows={**rules.flows, **counting}) if counting else rules


def miss_rule() -> FlowRule:
    """Return the rule that sends all packets without another rule in the pinned table to the default table."""
    return FlowRule(FlowKey(Table.PINNED, 0, Match()), cookie(Table.PINNED), goto=Table.DEFAULT)
