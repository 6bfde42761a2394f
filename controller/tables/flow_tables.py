"""Rules of the three flow tables of every switch. docs/reference/switch-rules.md lists them with their priorities.

Table 0 (control) sends LLDP and ARP to the controller, limited per port. All other packets continue to table 1. ARP
also continues to table 1. The switch forwards ARP by its target address like IP, so that known hosts find each other
without a controller. If a port has known hosts, ARP with any other sender address goes only to the controller. So no
host at the port can poison neighbour tables.

Table 1 (pinned) has two rules for each announced virtual link, either pins or counting rules: one for its data, and one
for the acknowledgements in the opposite direction. A pin sends packets to a path group. A counting rule lets packets
continue to table 2. A path group has two fast-failover buckets: the planned next hop, and the ECMP group of the same
destination. Acknowledgements of a pinned flow use the same cables in the reverse direction.

Table 2 (default) has routes by destination, to the port of a host or by ECMP over all shortest next hops. Table 2 works
without a controller. Hosts of other switches are reached by the address prefix of their leaf. A host outside of this
prefix has a rule of its own. Every bucket watches its port, so that a switch avoids a dead uplink by itself. The first
switch without a route for a packet drops it, and counts it by kind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from controller.fabric.counter_samples import Counted
from controller.fabric.topology import Dpid, Fabric, Host, LinkId, Path, PortNo, PortRef, Switch
from controller.planning.problem import FlowId, Route
from controller.tables.messages import RuleCount
from controller.tables.rules import (
    BROADCAST_MAC,
    CONTROLLER_MAC,
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    ETH_LLDP,
    IP_TCP,
    IP_UDP,
    Action,
    AnyPort,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    Prefix,
    RuleSet,
    SetDscp,
    Table,
    ToController,
    ToGroup,
    between,
    cookie,
    cookie_owner,
    dropped_cookie,
    host_prefix,
    learning_cookie,
    prefix_of,
    stable_hash,
)
from signalbox.jobs.spec import ROCE_PORT, Transport
from signalbox.jobs.subflows import PortClass, exactly

# ---- table 0

OTHER_ARP_PRIORITY = 80
KNOWN_HOST_PRIORITY = 90
PUNT_PRIORITY = 100
TRANSIT_PRIORITY = 101
NO_ADDRESS = host_prefix("0.0.0.0")
"""Sender address of an ARP probe (RFC 5227), which changes no neighbour table."""

SHARED_HOSTS = 128
"""Rules of a switch with more hosts than this are not cached.

A switch that invents hosts must not fill the cache."""

_OURS = cookie(Table.CONTROL)
_UP = (ToController(),)


def control_rules(
    switch: Switch, fabric_ports: Set[PortNo], hosts: Iterable[Host], punt_rate_pps: int, turns_back: bool = False
) -> RuleSet:
    """Return the rules of table 0 of one switch.

    The result is the same object for the same ports and hosts, unless there are more than ``SHARED_HOSTS`` hosts.
    ``fabric_ports``: ports with links to other switches. ``hosts``: hosts of this switch. ``turns_back``: whether
    packets may leave by the port where they arrived, as one-way links require."""
    known = tuple(sorted((host.at.port, host.ip) for host in hosts if host.at.port not in fabric_ports))
    derive = _control_rules if len(known) <= SHARED_HOSTS else _control_rules.__wrapped__
    return derive(tuple(switch.ports), frozenset(fabric_ports), known, punt_rate_pps, turns_back)


def adopting_rules(switch: Switch, installed: RuleSet, punt_rate_pps: int, turns_back: bool = False) -> RuleSet:
    """Return the rules of table 0 for a switch with rules of an earlier process, while the controller adopts them.

    All installed rules are kept, because the controller does not know yet which ports lead to other switches. A port
    without a rule for LLDP also gets the rules of a port without hosts, so that discovery can begin."""
    wanted = _control_rules(tuple(switch.ports), frozenset(), (), punt_rate_pps, turns_back)
    ready = {key.match.in_port for key in installed.flows if key.match.eth_type == ETH_LLDP}
    flows = {key: rule for key, rule in wanted.flows.items() if key.match.in_port not in ready}
    return RuleSet({**installed.flows, **flows}, installed.groups, {**wanted.meters, **installed.meters})


@lru_cache(maxsize=1 << 5)  # shared by switches with equal ports; an entry takes 100 kB in a fabric of 64 x 32
def _control_rules(
    ports: tuple[PortNo, ...],
    fabric_ports: frozenset[PortNo],
    known: tuple[tuple[PortNo, str], ...],
    punt_rate_pps: int,
    turns_back: bool,
) -> RuleSet:
    """Return the rules, and a meter per port: a host that floods exhausts only the limit of its own port.

    The id of a meter is the number of its port. ARP that arrives at fabric ports is only forwarded, because the
    switch of the sending host has already sent it to the controller."""
    probes = Match(eth_type=ETH_ARP, eth_dst=BROADCAST_MAC, arp_spa=NO_ADDRESS)
    onward = (AnyPort(),) if turns_back else ()
    flows = [_to_next_table(0, Match(), onward), _to_next_table(PUNT_PRIORITY, probes, onward)]
    with_hosts = {port for port, _ in known}
    for port in ports:
        flows += _rules_without_addresses(port, port in fabric_ports, port in with_hosts, onward)
    for port, ip in known:
        flows += _host_rules(port, ip, onward)
    return RuleSet.of(flows, meters=[_meter(port, punt_rate_pps) for port in ports])


@lru_cache(maxsize=1 << 13)  # shared by all switches, which mostly have the same port numbers
def _rules_without_addresses(
    port: PortNo, leads_to_switch: bool, has_hosts: bool, onward: tuple[Action, ...]
) -> tuple[FlowRule, ...]:
    arp = Match(in_port=port, eth_type=ETH_ARP)
    rules = (
        _to_controller(PUNT_PRIORITY, Match(in_port=port, eth_type=ETH_LLDP)),
        _to_controller(PUNT_PRIORITY, arp._replace(eth_dst=CONTROLLER_MAC)),
        _to_controller(OTHER_ARP_PRIORITY, arp, None if has_hosts else Table.PINNED, onward),
    )
    return (*rules, _to_next_table(TRANSIT_PRIORITY, arp, onward)) if leads_to_switch else rules


@lru_cache(maxsize=1 << 12)
def _host_rules(port: PortNo, ip: str, onward: tuple[Action, ...]) -> tuple[FlowRule, FlowRule]:
    own = Match(in_port=port, eth_type=ETH_ARP, arp_spa=host_prefix(ip))
    asking = own._replace(eth_dst=BROADCAST_MAC)
    return _to_controller(PUNT_PRIORITY, asking, Table.PINNED, onward), _to_next_table(KNOWN_HOST_PRIORITY, own, onward)


@lru_cache(maxsize=1 << 13)
def _meter(port: PortNo, rate_pps: int) -> MeterRule:
    return MeterRule(int(port), rate_pps, rate_pps)


def _to_next_table(priority: int, match: Match, onward: tuple[Action, ...]) -> FlowRule:
    return FlowRule(FlowKey(Table.CONTROL, priority, match), _OURS, onward, goto=Table.PINNED)


def _to_controller(priority: int, match: Match, goto: Table | None = None, onward: tuple[Action, ...] = ()) -> FlowRule:
    assert match.in_port is not None
    actions = (*_UP, *onward) if goto is not None else _UP
    return FlowRule(FlowKey(Table.CONTROL, priority, match), _OURS, actions, goto, meter=int(match.in_port))


# ---- table 1

PIN_PRIORITY = 100
LEARNING_PRIORITY = 50

_TO_ROCE = exactly(ROCE_PORT)

GroupId = Callable[[PortNo], int]


class FlowPart(NamedTuple):
    """Part of the packets of a flow, selected by transport ports.

    ``ports``: class of the source ports. ``dst_ports``: class of the destination ports; None for any. If ``answers`` is
    True, the part is not these packets but their acknowledgements. A TCP acknowledgement has the two ports exchanged. A
    RoCEv2 acknowledgement has a source port of the same class as the data: both ends of a queue pair derive it from one
    flow label."""

    transport: Transport
    ports: PortClass
    answers: bool = False
    dst_ports: PortClass | None = None

    @property
    def bits(self) -> int:
        """Number of port bits that the part matches. Parts with more bits are more specific."""
        return self.ports.mask.bit_count() + (self.dst_ports.mask.bit_count() if self.dst_ports else 0)


class Announcement(NamedTuple):
    """Facts on which the rules for an announced pair of hosts depend."""

    owner: int
    """40-bit hash of the job."""
    parts: tuple[tuple[FlowPart, ...], ...]
    """Parts of each subflow into which the flow can be split; empty if the flow stays whole."""
    alone: bool = True
    """Whether the rule for all packets of the pair belongs to this job. If not, the job has only rules for parts of the
    packets."""
    marking: tuple[SetDscp, ...] = ()
    """Marking of the job's packets at the switch of their source; empty for a job without a class."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Wanted rule of table 1 for one direction of a virtual link, or for a part of its packets."""

    flow: FlowId
    owner: int
    """Owner of the rule: 40-bit hash of the job."""
    path: Path | None
    """Planned path; None if the flow is only counted."""
    part: FlowPart | None = None
    """Part of the flow's packets that the pin is for; None for all packets."""
    learning: bool = False
    """Whether the rule is a learning rule, which counts a pair that no job has announced."""
    subflows: tuple[FlowId, ...] = ()
    """Subflows with the same path that share this pin; no subflow here has a pin of its own.

    Empty if the pin serves only ``flow``."""
    marking: tuple[SetDscp, ...] = ()
    """See ``Announcement``."""
    key: FlowKey = field(init=False, repr=False, compare=False)
    """Key of the pin's entry in table 1."""

    def __post_init__(self) -> None:
        key = pin_key(self.flow, self.part)
        object.__setattr__(self, "key", key._replace(priority=LEARNING_PRIORITY) if self.learning else key)

    @property
    def flows(self) -> tuple[FlowId, ...]:
        return self.subflows or (self.flow,)


def pin_key(flow: FlowId, part: FlowPart | None = None) -> FlowKey:
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
    """Return the pin from which the rule was made, without its path; None if the rule belongs to no announced flow.

    A rule may fit both data and acknowledgements: for RoCEv2, and if both ports are single ports. Such a rule is read
    as a pin for data."""
    match = rule.key.match
    if rule.key.table != Table.PINNED or match.ip_src is None or match.ip_dst is None:
        return None
    part = None
    if match.ip_proto == IP_UDP and match.src_port:
        part = FlowPart(Transport.ROCE_V2, match.src_port)
    elif match.ip_proto == IP_TCP and match.src_port:
        part = FlowPart(Transport.TCP, match.src_port, dst_ports=match.dst_port)
    elif match.ip_proto == IP_TCP and match.dst_port:
        part = FlowPart(Transport.TCP, match.dst_port, answers=True)
    pin = Pin(
        FlowId(match.ip_src.address, match.ip_dst.address), cookie_owner(rule.cookie), None, part, marking=rule.marking
    )
    return pin if pin.key == rule.key else None


def counted(key: FlowKey) -> Counted | None:
    """Return the traffic that the entry with this key counts; None if the entry is not for a flow."""
    match = key.match
    if key.table != Table.PINNED or match.ip_src is None or match.ip_dst is None:
        return None
    part: Hashable = (match.src_port, match.dst_port) if match.ip_proto is not None else None
    if key.priority == LEARNING_PRIORITY:
        part = LEARNING_PRIORITY
    return Counted(match.ip_src.address, match.ip_dst.address, part)


def reverse_path(fabric: Fabric, path: Path) -> Path | None:
    """Return the path over the same cables in the reverse direction; None if a link of ``path`` is lost."""
    back: list[LinkId] = []
    for link_id in reversed(path):
        link = fabric.links.get(link_id)
        if link is None:
            return None
        back.append(LinkId(link.dst.dpid, link.dst.port))
    return tuple(back)


class Routed(NamedTuple):
    """Route of a flow, and the reverse path of each of its subflows."""

    flow: FlowId
    route: Route | None
    back: tuple[Path | None, ...]


def both_directions(ways: Sequence[Routed], announced: Announcement, answered: bool) -> tuple[Pin, ...]:
    """Return the pins of an announced virtual link, for its data and for its acknowledgements.

    ``ways``: the routed flow of the link, or its subflows if they are planned as flows of their own. ``answered``:
    whether another virtual link, in the opposite direction, already has rules that serve the acknowledgements. If so,
    only the pins for data are returned."""
    paths = [(way.flow, [path for path, _ in way.route or ()]) for way in ways]
    pins = tuple(_one_direction(paths, announced))
    if answered:
        return pins
    answers = tuple(tuple(part._replace(answers=True) for part in bundle) for bundle in announced.parts)
    back = [(way.flow.back, way.back) for way in ways]
    return pins + tuple(_one_direction(back, announced._replace(parts=answers)))


def _one_direction(flows: Sequence[tuple[FlowId, Sequence[Path | None]]], announced: Announcement) -> Iterator[Pin]:
    """Yield the pins for one direction of a virtual link.

    A flow with a single path has one pin, for all packets of the pair. With several paths, each part of the packets has
    a pin, and a pin with a lower priority serves all remaining packets. The pin for the remaining packets has no path
    if one flow is split. If ``flows`` are several subflows, that pin has the path that most subflows share, and only
    subflows with other paths have pins of their own. ``alone``: see ``Announcement``; without it, there is no pin for
    the remaining packets."""
    owner, parts, alone, marking = announced
    subflows = [(flow, path) for flow, paths in flows for path in paths or (None,)]
    whole = len(subflows) == 1
    common = subflows[0][1] if whole else _common_path([path for _, path in subflows]) if len(flows) > 1 else None
    if alone:
        together = () if whole or common is None else tuple(flow for flow, path in subflows if path == common)
        yield Pin(subflows[0][0], owner, common, subflows=together, marking=marking)
        if whole:
            return
    bundles = [tuple(part for bundle in parts for part in bundle)] if whole else parts
    for (flow, path), bundle in zip(subflows, bundles, strict=False):
        if not alone or path not in (None, common):
            for part in bundle:
                yield Pin(flow, owner, path, part, marking=marking)


def _common_path(paths: Sequence[Path | None]) -> Path | None:
    """Return the most frequent path, the first one on a tie; None if no two paths are equal."""
    times = Counter(path for path in paths if path is not None)
    path, most = max(times.items(), key=itemgetter(1), default=(None, 0))
    return path if most > 1 else None


@lru_cache(maxsize=1 << 16)
def path_group(group_id: int, port: PortNo, usable: bool, ecmp_group_id: int, distance: int) -> GroupRule:
    """Return the group of the planned next hop and, for failover, the ECMP group.

    ``usable``: whether the planned next hop leads to the destination; if not, it is left out."""
    fallback = Bucket(ToGroup(ecmp_group_id), watch_group=ecmp_group_id)
    planned = (Bucket(Output(port), watch_port=port),) if usable else ()
    return GroupRule(group_id, "fast_failover", (*planned, fallback), distance)


def pin_rule(pin: Pin, here: Dpid, next_hops: tuple[LinkId, ...], group_id: GroupId) -> FlowRule | None:
    """Return the table-1 entry of a pin on the switch ``here``, or None if the switch needs no entry.

    The source's switch always has an entry. Other switches on the path need one only if the default table could choose
    another next hop. ``next_hops``: next hops of this switch to the destination's switch. ``group_id``: returns the id
    of the path group for a port."""
    for index, hop in enumerate(pin.path or ()):
        if hop.dpid == here and (index == 0 or next_hops != (hop,)):
            ours = cookie(Table.PINNED, pin.owner)
            distance = len(pin.path or ()) - index
            marking = pin.marking if index == 0 else ()
            return FlowRule(pin.key, ours, (*marking, ToGroup(group_id(hop.port))), distance=distance)
    return None


def counting_rule(pin: Pin, distance: int) -> FlowRule:
    """Return a rule that counts a flow at the source's switch, and leaves the choice of the next hop to ECMP.

    ``distance``: distance in links from the source's switch to the destination's. Smaller distances are installed
    first: the pins of subflows precede this rule, which replaces the pin of their flow."""
    ours = learning_cookie(pin.owner) if pin.learning else cookie(Table.PINNED, pin.owner)
    return FlowRule(pin.key, ours, pin.marking, Table.DEFAULT, distance=distance)


def on_ecmp(rules: RuleSet, missing: Collection[int]) -> RuleSet:
    """Return the rules, with a counting rule in place of each pin that sends to one of the ``missing`` groups.

    A missing group is one that the switch has refused. After the counting rule, the default table forwards the packets
    by ECMP. The result is the same object if no pin sends to a missing group."""
    counting = {
        key: FlowRule(key, rule.cookie, rule.marking, Table.DEFAULT, distance=rule.distance)
        for key, rule in (rules.flows.items() if missing else ())
        if key.table == Table.PINNED and rule.group_id in missing
    }
    return replace(rules, flows={**rules.flows, **counting}) if counting else rules


MISS_RULE = FlowRule(FlowKey(Table.PINNED, 0, Match()), cookie(Table.PINNED), goto=Table.DEFAULT)
"""Rule that sends all packets without another rule in the pinned table to the default table."""


# ---- table 2

BASE_PRIORITY = 100
GATEWAY_PRIORITY = 140

SPREAD_BEYOND = 2
"""Largest distance in links to the destination at which an ECMP group has one bucket per next hop, in port order.

Groups at larger distances may have several rows of buckets (``_spread``)."""
SPREAD_ROWS = 8
"""Largest number of rows of a group. A row has a bucket for every next hop (``_spread``)."""
MAX_SPREAD_BUCKETS = 64
"""Largest number of buckets of a group with several rows.

Open vSwitch selects a bucket by six bits of a packet's hash, if the group has no selection method."""

_ORDER_BITS = 24
_ROW_MASKS = tuple(int(f"{row:03b}"[::-1] * (_ORDER_BITS // 3), 2) for row in range(SPREAD_ROWS))
"""Mask of each row: mask i consists of the three bits of i in reverse order, repeated.

Row i sorts the next hops by port number XOR mask i. So any two ports have one order in half of the rows and the
opposite order in the other half. From row to row, adjacent ports change their order as rarely as possible."""


GatewayPorts = tuple[tuple[str, PortRef], ...]
"""MAC address and port of each gateway that was found."""


class Gateway(NamedTuple):
    """A router: the host with address ``ip``. Hosts send packets for the router to MAC address ``mac``."""

    ip: str
    mac: str


def destination_prefixes(fabric: Fabric, prefix_length: int, present: Mapping[Prefix, Dpid]) -> dict[Prefix, Dpid]:
    """Return the switch to which the packets for each prefix are sent.

    A prefix of several addresses stays at its ``present`` switch while a host of the prefix is there. A prefix without
    such a host belongs to the switch with the largest number of its hosts. A host of the prefix at another switch gets
    a second, longer prefix, which has only its own address."""
    members: dict[Prefix, list[Host]] = defaultdict(list)
    for host in fabric.hosts.values():
        members[prefix_of(host.ip, prefix_length)].append(host)
    owners: dict[Prefix, Dpid] = {}
    for prefix, hosts in members.items():
        counts = Counter(host.at.dpid for host in hosts)
        owner = min(counts, key=lambda dpid: (dpid != present.get(prefix), -counts[dpid], dpid))
        owners[prefix] = owner
        owners |= {host_prefix(host.ip): host.at.dpid for host in hosts if host.at.dpid != owner}
    return owners


@lru_cache(maxsize=1 << 18)
def destination_rules(prefix: Prefix, action: Output | ToGroup, distance: int) -> tuple[FlowRule, FlowRule]:
    """Return the rules for IP by destination and for unicast ARP by target address, both with this action."""
    priority = BASE_PRIORITY + prefix.length
    matches = (Match(eth_type=ETH_IPV4, ip_dst=prefix), Match(eth_type=ETH_ARP, arp_tpa=prefix))
    ip, arp = (
        FlowRule(FlowKey(Table.DEFAULT, priority, match), cookie(Table.DEFAULT), (action,), distance=distance)
        for match in matches
    )
    return ip, arp


@lru_cache(maxsize=1 << 14)
def ecmp_group(group_id: int, next_hops: tuple[LinkId, ...], distance: int) -> GroupRule:
    """Return a group that chooses among the next hops of one switch by a hash of the packet.

    ``distance``: number of links to the destination's switch.

    All switches compute the same hash of a packet. The packets that one bucket sends to the next switch therefore have
    similar hashes, and would use only some buckets of the next switch. So groups at a distance of three links (on
    aggregation switches) repeat every hop several times, each time in another order. Groups nearer to the destination
    do not repeat hops, because no further choice follows. If a hop is lost, its buckets are removed, and all other
    buckets keep their order."""
    hops = sorted(next_hops, key=lambda link: link.port)
    if distance > SPREAD_BEYOND:
        hops = _spread(hops, stable_hash(_ORDER_BITS, "spread", next_hops[0].dpid, group_id), distance)
    return GroupRule(group_id, "select", buckets(tuple(hop.port for hop in hops)), distance)


@lru_cache(maxsize=1 << 12)
def buckets(ports: tuple[PortNo, ...]) -> tuple[Bucket, ...]:
    """Return a bucket for each port.

    The result is the same object for the same ports, shared by most groups of a switch."""
    return tuple(map(bucket, ports))


@lru_cache(maxsize=1 << 12)
def bucket(port: PortNo) -> Bucket:
    """Return the bucket that sends out of a port while the port is up.

    Groups share bucket objects: 64 x 32 switches would need 130,000 objects without sharing."""
    return Bucket(Output(port), watch_port=port)


def _spread(hops: list[LinkId], labels: int, distance: int) -> list[LinkId]:
    """Return the next hops in the order of an ECMP group's buckets, as one row or several rows one after the other.

    Each row has all hops, sorted by port number XOR ``labels`` XOR the mask of the row. At even distances there is one
    row, and the bucket follows from the lowest bits of the hash. At odd distances there are several rows, and the next
    bits of the hash choose the row, which is an order of the hops. Two successive switches thus use different bits.

    ``labels``: number that differs between switches, so that they do not all prefer the same hops if the hash is
    uneven."""
    rows = min(SPREAD_ROWS, MAX_SPREAD_BUCKETS // len(hops)) if distance % 2 else 1
    return [
        hop
        for row in range(max(rows, 1))
        for hop in sorted(hops, key=lambda hop: (hop.port - 1) ^ labels ^ _ROW_MASKS[row])
    ]


DHCP_SERVER_PORT = 67
MULTICAST = Prefix("224.0.0.0", 4)


class Dropped(StrEnum):
    """Kind of a packet that is not forwarded."""

    IPV6 = "ipv6"
    MULTICAST = "multicast"
    BROADCAST = "broadcast"
    DHCP = "dhcp"
    UNKNOWN_HOST = "unknown_host"
    OTHER = "other"


_MATCHES: Mapping[tuple[int, Match], Dropped] = {
    (40, Match(eth_type=ETH_IPV4, ip_proto=IP_UDP, dst_port=exactly(DHCP_SERVER_PORT))): Dropped.DHCP,
    (30, Match(eth_type=ETH_IPV4, ip_dst=MULTICAST)): Dropped.MULTICAST,
    (30, Match(eth_type=ETH_IPV6)): Dropped.IPV6,
    (30, Match(eth_type=ETH_ARP)): Dropped.UNKNOWN_HOST,
    (20, Match(eth_dst=BROADCAST_MAC)): Dropped.BROADCAST,
    (10, Match(eth_type=ETH_IPV4)): Dropped.UNKNOWN_HOST,
    (1, Match()): Dropped.OTHER,
}
"""Kind of packets that each drop rule drops, by priority and match of the rule.

The priorities are above 0, because priority 0 is the table-miss entry: a full table may lack drop rules, but not this
entry."""

_KINDS = {FlowKey(Table.DEFAULT, *place): kind for place, kind in _MATCHES.items()}

DROP_RULES = tuple(FlowRule(key, dropped_cookie()) for key in _KINDS)


def default_rules(
    here: Dpid,
    hosts: Iterable[Host],
    prefixes: Mapping[Prefix, Dpid],
    gateways: GatewayPorts,
    to: Mapping[Dpid, tuple[int, int]],
) -> tuple[FlowRule, ...]:
    """Return the rules of table 2 of the switch ``here``.

    ``hosts``: hosts of the switch. ``to``: ECMP group and distance, by destination's switch."""
    rules = [rule for host in hosts for rule in destination_rules(host_prefix(host.ip), Output(host.at.port), 0)]
    for prefix, leaf in prefixes.items():
        if leaf != here and leaf in to:
            group_id, distance = to[leaf]
            rules += destination_rules(prefix, ToGroup(group_id), distance)
    for mac, at in gateways:
        key = FlowKey(Table.DEFAULT, GATEWAY_PRIORITY, Match(eth_type=ETH_IPV4, eth_dst=mac))
        if at.dpid == here:
            rules.append(FlowRule(key, cookie(Table.DEFAULT), (Output(at.port),)))
        elif at.dpid in to:
            group_id, distance = to[at.dpid]
            rules.append(FlowRule(key, cookie(Table.DEFAULT), (ToGroup(group_id),), distance=distance))
    return (*rules, *DROP_RULES)


MOST_PACKETS = (1 << 64) - 1
"""Largest number of packets that is reported for one kind."""


def dropped_packets(flows: Mapping[FlowKey, RuleCount]) -> dict[Dropped, int]:
    """Return the number of dropped packets of each kind since the rules were installed.

    The result is empty when the switch has no drop rules yet, or does not count packets."""
    found: dict[Dropped, int] = {}
    for key, kind in _KINDS.items():
        count = flows.get(key)
        if count is not None and count.packets is not None:
            found[kind] = min(MOST_PACKETS, found.get(kind, 0) + count.packets)
    return found
