"""Purpose of each rule on a switch, and its text in the notation of ``ovs-ofctl``.

The purpose of a flow rule follows from its table, its match and the owner in its cookie. The purpose of a group follows
from its id, which is a hash of the purpose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from controller.fabric.topology import Dpid, Fabric
from controller.planning.problem import FlowId
from controller.tables.flow_tables import LEARNING_PRIORITY, counted
from controller.tables.rules import (
    ETH_ARP,
    ETH_IPV4,
    ETH_LLDP,
    IP_TCP,
    IP_UDP,
    Action,
    AnyPort,
    Bucket,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    Prefix,
    Rule,
    RuleSet,
    SetDscp,
    Table,
    ToController,
    ToGroup,
    cookie_owner,
    job_owner,
    possible_groups,
)
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import PortClass


class Purpose(StrEnum):
    """Purpose of a rule."""

    LLDP = "lldp"
    """Send LLDP to the controller."""
    ARP = "arp"
    """Send ARP to the controller, forward it, or both."""
    MISS = "miss"
    """Send packets that match no other rule to the next table."""
    PIN = "pin"
    """Send a flow over its planned path."""
    COUNTING = "counting"
    """Count the bytes of a flow that uses ECMP."""
    LEARNING = "learning"
    """Count the bytes of a pair that no job has announced."""
    HOST = "host"
    """Send packets to the port of a host."""
    ECMP = "ecmp"
    """Send packets to another switch, over next hops chosen by hash."""
    PUNT_LIMIT = "punt_limit"
    """Limit the rate of packets that a port sends to the controller."""
    ORPHAN = "orphan"
    """Rule of a job that this controller does not know."""
    DROP = "drop"
    """Drop packets that are not forwarded, and count them by kind."""
    FOUND = "found"
    """Group of unknown purpose that was found on the switch."""


class Use(NamedTuple):
    """Purpose of one rule, and the jobs, flow and destination that it serves."""

    purpose: Purpose
    jobs: tuple[JobId, ...] = ()
    """Jobs that the rule serves."""
    flow: FlowId | None = None
    """Flow whose packets the rule matches."""
    answers: bool = False
    """Whether the rule is for acknowledgements. ``flow`` then leads from the receiver of the job's data to the
    sender."""
    towards: Dpid | None = None
    """Switch to which the group leads; for a flow rule, the switch to which the rule's group leads."""


class Announcing(Protocol):
    """Facts about a job on which the purposes of rules depend. ``routes``: routes by announced flow."""

    @property
    def routes(self) -> Mapping[FlowId, object]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Ordered:
    """Rules of a switch in the order of their keys: flows by table, most specific first, then groups, then meters."""

    keys: tuple[str, ...]
    """Unique sort keys of the rules, in ascending order."""
    rules: tuple[Rule, ...]
    owners: Mapping[int, frozenset[int]]
    """Owners of the pins that send to each group, by group id."""


def ordered(rules: RuleSet) -> Ordered:
    found: list[tuple[str, Rule]] = []
    owners: defaultdict[int, set[int]] = defaultdict(set)
    for key, flow in rules.flows.items():
        found.append((f"0 {int(key.table)} {0xFFFF - key.priority:05d} {match_text(key.match)}", flow))
        if key.table == Table.PINNED and flow.group_id is not None:
            owners[flow.group_id].add(cookie_owner(flow.cookie))
    found += [(f"1 {group_id:010d}", group) for group_id, group in rules.groups.items()]
    found += [(f"2 {meter_id:010d}", meter) for meter_id, meter in rules.meters.items()]
    found.sort(key=lambda item: item[0])
    names = tuple(key for key, _ in found)
    return Ordered(names, tuple(rule for _, rule in found), {group: frozenset(of) for group, of in owners.items()})


class Purposes:
    """Purposes of the rules of one switch. ``jobs``: all jobs."""

    def __init__(self, dpid: Dpid, fabric: Fabric, jobs: Mapping[JobId, Announcing]) -> None:
        self._job_of = {job_owner(job_id): job_id for job_id in jobs}
        self._jobs = jobs
        self._pairs: dict[JobId, Set[tuple[str, str]]] = {}
        self._groups = possible_groups(dpid, fabric)

    def of(self, rule: Rule, owners: Mapping[int, frozenset[int]]) -> Use:
        """Return the use of a rule. ``owners``: see ``Ordered``."""
        match rule:
            case MeterRule():
                return Use(Purpose.PUNT_LIMIT)
            case GroupRule():
                return self._of_group(rule, owners.get(rule.group_id, frozenset()))
        match rule.key.table:
            case Table.CONTROL:
                kinds = {ETH_LLDP: Purpose.LLDP, ETH_ARP: Purpose.ARP}
                return Use(kinds.get(rule.key.match.eth_type or 0, Purpose.MISS))
            case Table.PINNED:
                return self._of_flow(rule)
            case Table.DEFAULT:
                return self._by_destination(rule)

    def _of_flow(self, rule: FlowRule) -> Use:
        if (what := counted(rule.key)) is None:
            return Use(Purpose.MISS)
        flow, job_id = FlowId(what.src_ip, what.dst_ip), self._job_of.get(cookie_owner(rule.cookie))
        if job_id is None:
            return Use(Purpose.ORPHAN, flow=flow)
        if rule.key.priority == LEARNING_PRIORITY:
            return Use(Purpose.LEARNING, (job_id,), flow)
        purpose = Purpose.COUNTING if rule.goto is not None else Purpose.PIN
        return Use(purpose, (job_id,), flow, flow.pair not in self._announced(job_id), self._towards(rule))

    def _announced(self, job_id: JobId) -> Set[tuple[str, str]]:
        if job_id not in self._pairs:
            self._pairs[job_id] = {flow.pair for flow in self._jobs[job_id].routes}
        return self._pairs[job_id]

    def _by_destination(self, rule: FlowRule) -> Use:
        if not rule.actions:
            return Use(Purpose.DROP)
        if any(isinstance(action, Output) for action in rule.actions):
            return Use(Purpose.HOST)
        return Use(Purpose.ECMP, towards=self._towards(rule))

    def _of_group(self, group: GroupRule, owners: frozenset[int]) -> Use:
        towards = self._groups.get(group.group_id)
        jobs = tuple(sorted(self._job_of[owner] for owner in owners if owner in self._job_of))
        if towards is None and not jobs:
            return Use(Purpose.FOUND)
        return Use(Purpose.ECMP if group.kind == "select" else Purpose.PIN, jobs, towards=towards)

    def _towards(self, rule: FlowRule) -> Dpid | None:
        return self._groups.get(rule.group_id) if rule.group_id is not None else None


_PROTOCOLS = {(ETH_IPV4, None): "ip", (ETH_IPV4, IP_TCP): "tcp", (ETH_IPV4, IP_UDP): "udp", (ETH_ARP, None): "arp"}
_ALL_PORTS = 0xFFFF
_KINDS = {"select": "select", "fast_failover": "ff", "other": "other"}


def match_text(match: Match) -> str:
    """Return text such as ``tcp,nw_src=10.0.1.1,nw_dst=10.0.2.1,tp_src=0x2/0x6``; empty if everything matches."""
    return ",".join(_fields(match))


def _fields(match: Match) -> Iterator[str]:
    protocol = _PROTOCOLS.get((match.eth_type or 0, match.ip_proto))
    if protocol:
        yield protocol
    elif match.eth_type is not None:
        yield f"dl_type={match.eth_type:#06x}"
    if match.in_port is not None:
        yield f"in_port={match.in_port}"
    if match.eth_dst is not None:
        yield f"dl_dst={match.eth_dst}"
    prefixes = ("nw_src", match.ip_src), ("nw_dst", match.ip_dst)
    for name, prefix in (*prefixes, ("arp_spa", match.arp_spa), ("arp_tpa", match.arp_tpa)):
        if prefix is not None:
            yield f"{name}={_prefix(prefix)}"
    for name, ports in (("tp_src", match.src_port), ("tp_dst", match.dst_port)):
        if ports is not None:
            yield f"{name}={_ports(ports)}"


def _prefix(prefix: Prefix) -> str:
    return prefix.address if prefix.is_host else str(prefix)


def _ports(ports: PortClass) -> str:
    return str(ports.value) if ports.mask == _ALL_PORTS else f"{ports.value:#x}/{ports.mask:#x}"


def actions_text(rule: FlowRule | GroupRule | MeterRule) -> str:
    """Return the actions of a flow, the kind and buckets of a group, or the band of a meter."""
    match rule:
        case FlowRule():
            parts = [f"meter:{rule.meter}"] if rule.meter is not None else []
            parts += map(_action, rule.actions)
            parts += [f"goto_table:{int(rule.goto)}"] if rule.goto is not None else []
            return ",".join(parts) or "drop"
        case GroupRule():
            return ",".join((f"type={_KINDS[rule.kind]}", *map(_bucket, rule.buckets)))
        case MeterRule():
            return f"pktps,burst,bands=type=drop,rate={rule.rate_pps},burst_size={rule.burst_packets}"


def _action(action: Action) -> str:
    match action:
        case Output(port):
            return f"output:{port}"
        case ToGroup(group_id):
            return f"group:{group_id}"
        case SetDscp(dscp):
            return f"set_field:{dscp}->ip_dscp"
        case AnyPort():
            return "load:0->NXM_OF_IN_PORT[]"
        case ToController():
            return "CONTROLLER:65535"


def _bucket(bucket: Bucket) -> str:
    watched = (("watch_port", bucket.watch_port), ("watch_group", bucket.watch_group))
    watches = [f"{name}:{number}" for name, number in watched if number is not None]
    return "bucket=" + ",".join((*watches, f"actions={_action(bucket.action)}"))
