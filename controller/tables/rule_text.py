"""Rules as ``ovs-ofctl`` writes them, so that they can be looked for on the switch. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from controller.tables.rules import (
    ETH_ARP,
    ETH_IPV4,
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
    ToGroup,
)
from signalbox.jobs.subflows import PortClass

_PROTOCOLS = {(ETH_IPV4, None): "ip", (ETH_IPV4, IP_TCP): "tcp", (ETH_IPV4, IP_UDP): "udp", (ETH_ARP, None): "arp"}
_ALL_PORTS = 0xFFFF
_KINDS = {"select": "select", "fast_failover": "ff", "other": "other"}


def match_text(match: Match) -> str:
    """``tcp,nw_src=10.0.1.1,nw_dst=10.0.2.1,tp_src=0x2/0x6``; empty for one that matches everything."""
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
    """Of a flow its actions, of a group its kind and buckets, of a meter its band."""
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
        case AnyPort():
            return "load:0->NXM_OF_IN_PORT[]"
        case _:
            return "CONTROLLER:65535"


def _bucket(bucket: Bucket) -> str:
    watched = (("watch_port", bucket.watch_port), ("watch_group", bucket.watch_group))
    watches = [f"{name}:{number}" for name, number in watched if number is not None]
    return "bucket=" + ",".join((*watches, f"actions={_action(bucket.action)}"))
