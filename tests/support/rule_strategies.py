"""Hypothesis strategies for every rule of the tables, and Ryu's message for each."""

from typing import Any

from hypothesis import strategies as st

from controller.fabric.topology import PortNo
from controller.southbound.framework import PROTOCOL, ofp, ofp_parser
from controller.tables.rules import (
    COOKIE_MASK,
    ETH_ARP,
    ETH_IPV4,
    ETH_LLDP,
    IP_TCP,
    IP_UDP,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    Prefix,
    RuleMod,
    SetDscp,
    Table,
    ToController,
    ToGroup,
    cookie,
)
from signalbox.jobs.subflows import PortClass

ports = st.integers(1, ofp.OFPP_MAX).map(PortNo)
group_ids = st.integers(0, ofp.OFPG_MAX)
macs = st.binary(min_size=6, max_size=6).map(lambda raw: raw.hex(":"))


@st.composite
def prefixes(draw: st.DrawFn) -> Prefix:
    length = draw(st.integers(1, 32))
    host_bits = 32 - length
    address = draw(st.integers(0, (1 << 32) - 1)) >> host_bits << host_bits
    return Prefix(".".join(map(str, address.to_bytes(4, "big"))), length)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def match_of(**fields: Any) -> Match:
    """Return a match with only the given fields; hypothesis would otherwise generate values for the others too."""
    return Match(**fields)


any_match = st.builds(match_of, in_port=optional(ports), eth_type=optional(st.just(ETH_LLDP)), eth_dst=optional(macs))
ip_match = st.builds(
    match_of, in_port=optional(ports), eth_type=st.just(ETH_IPV4), eth_dst=optional(macs),
    ip_src=optional(prefixes()), ip_dst=prefixes(),
)  # fmt: skip
port_masks = st.builds(
    lambda value, mask: PortClass(value & mask, mask), st.integers(0, 0xFFFF), st.integers(1, 0xFFFF)
)
l4_match = st.builds(
    match_of, eth_type=st.just(ETH_IPV4), ip_src=optional(prefixes()), ip_dst=prefixes(),
    ip_proto=st.sampled_from([IP_TCP, IP_UDP]), src_port=optional(port_masks), dst_port=optional(port_masks),
)  # fmt: skip
arp_match = st.builds(
    match_of, in_port=optional(ports), eth_type=st.just(ETH_ARP), eth_dst=optional(macs),
    arp_tpa=optional(prefixes()), arp_spa=optional(prefixes()),
)  # fmt: skip
matches = any_match | ip_match | l4_match | arp_match
outputs = st.builds(Output, ports)
to_groups = st.builds(ToGroup, group_ids)
keys = st.builds(FlowKey, st.sampled_from(Table), st.integers(0, 65535), matches)
flow_rules = st.builds(
    FlowRule,
    keys,
    st.builds(cookie, st.sampled_from(Table), st.integers(0, (1 << 40) - 1)),
    st.lists(outputs | to_groups | st.just(ToController()) | st.builds(SetDscp, st.integers(0, 63)), max_size=3).map(
        tuple
    ),
    optional(st.sampled_from(Table)),
    optional(st.integers(1, ofp.OFPM_MAX)),
)
buckets = st.builds(Bucket, outputs | to_groups, optional(ports), optional(group_ids))
group_rules = st.builds(
    GroupRule, group_ids, st.sampled_from(["select", "fast_failover"]), st.lists(buckets, max_size=33).map(tuple)
)
meter_rules = st.builds(MeterRule, st.integers(1, ofp.OFPM_MAX), st.integers(1, 1 << 31), st.integers(1, 1 << 31))
mods = st.builds(RuleMod, st.sampled_from(["add", "modify", "delete"]), flow_rules | group_rules | meter_rules)


# ---- rules as messages of Ryu

_FLOW_COMMANDS = {"add": ofp.OFPFC_ADD, "modify": ofp.OFPFC_MODIFY_STRICT, "delete": ofp.OFPFC_DELETE_STRICT}
_GROUP_COMMANDS = {"add": ofp.OFPGC_ADD, "modify": ofp.OFPGC_MODIFY, "delete": ofp.OFPGC_DELETE}
_METER_COMMANDS = {"add": ofp.OFPMC_ADD, "modify": ofp.OFPMC_MODIFY, "delete": ofp.OFPMC_DELETE}


def ryu_message(mod: RuleMod) -> Any:
    rule = mod.rule
    if isinstance(rule, FlowRule):
        return ofp_parser.OFPFlowMod(
            PROTOCOL,
            cookie=rule.cookie,
            cookie_mask=0 if mod.op == "add" else COOKIE_MASK,
            table_id=int(rule.key.table),
            command=_FLOW_COMMANDS[mod.op],
            priority=rule.key.priority,
            out_port=ofp.OFPP_ANY,
            out_group=ofp.OFPG_ANY,
            match=ryu_match(rule.key.match),
            instructions=[] if mod.op == "delete" else _instructions(rule),
        )
    if isinstance(rule, GroupRule):
        kind = {"select": ofp.OFPGT_SELECT, "fast_failover": ofp.OFPGT_FF}[rule.kind]
        made = [] if mod.op == "delete" else [_bucket(rule, bucket) for bucket in rule.buckets]
        return ofp_parser.OFPGroupMod(PROTOCOL, _GROUP_COMMANDS[mod.op], kind, rule.group_id, made)
    bands = [] if mod.op == "delete" else [ofp_parser.OFPMeterBandDrop(rule.rate_pps, rule.burst_packets)]
    flags = ofp.OFPMF_PKTPS | ofp.OFPMF_BURST
    return ofp_parser.OFPMeterMod(PROTOCOL, _METER_COMMANDS[mod.op], flags, rule.meter_id, bands)


def ryu_match(match: Match) -> Any:
    protocol = "udp" if match.ip_proto == IP_UDP else "tcp"
    fields: dict[str, Any] = {"in_port": match.in_port, "eth_type": match.eth_type, "eth_dst": match.eth_dst}
    fields |= {"ip_proto": match.ip_proto}
    prefixes = {"ipv4_src": match.ip_src, "ipv4_dst": match.ip_dst, "arp_tpa": match.arp_tpa, "arp_spa": match.arp_spa}
    fields |= {name: _prefix(prefix) for name, prefix in prefixes.items()}
    fields |= {f"{protocol}_src": _port(match.src_port), f"{protocol}_dst": _port(match.dst_port)}
    return ofp_parser.OFPMatch(**{name: value for name, value in fields.items() if value is not None})


def _prefix(prefix: Prefix | None) -> Any:
    if prefix is None or prefix.length == 32:
        return prefix and prefix.address
    mask = ((1 << prefix.length) - 1) << (32 - prefix.length)
    return prefix.address, ".".join(map(str, mask.to_bytes(4, "big")))


def _port(port: PortClass | None) -> Any:
    return port.value if port and port.mask == 0xFFFF else port


def _instructions(rule: FlowRule) -> list[Any]:
    made: list[Any] = []
    if rule.meter is not None:
        made.append(ofp_parser.OFPInstructionMeter(rule.meter))
    if rule.actions:
        actions = [_action(action) for action in rule.actions]
        made.append(ofp_parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions))
    if rule.goto is not None:
        made.append(ofp_parser.OFPInstructionGotoTable(int(rule.goto)))
    return made


def _action(action: Any) -> Any:
    if isinstance(action, Output):
        return ofp_parser.OFPActionOutput(action.port, 0)
    if isinstance(action, ToGroup):
        return ofp_parser.OFPActionGroup(action.group_id)
    if isinstance(action, SetDscp):
        return ofp_parser.OFPActionSetField(ip_dscp=action.dscp)
    return ofp_parser.OFPActionOutput(ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)


def _bucket(rule: GroupRule, bucket: Bucket) -> Any:
    return ofp_parser.OFPBucket(
        1 if rule.kind == "select" else 0,
        ofp.OFPP_ANY if bucket.watch_port is None else bucket.watch_port,
        ofp.OFPG_ANY if bucket.watch_group is None else bucket.watch_group,
        [_action(bucket.action)],
    )
