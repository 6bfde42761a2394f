"""Our frozen rule types to OpenFlow 1.3 messages and back; nothing else knows both.

In: rules and rule mods. Out: Ryu messages, not yet numbered. In: multipart bodies. Out: rules, or None for what
somebody else's rule says that ours cannot. Lossless for every rule type. Section numbers are those of OpenFlow 1.3.5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from ipaddress import IPv4Address
from typing import Any, Literal

from controller.fabric.topology import Dpid, Port, PortNo
from controller.jobs.source_ports import PortClass, exactly
from controller.messages import PortCount
from controller.southbound.framework import PROTOCOL, ofp, ofp_parser
from controller.tables.rules import (
    COOKIE_MAGIC,
    COOKIE_MASK,
    ETH_IPV4,
    IP_TCP,
    IP_UDP,
    Action,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    Prefix,
    RuleMod,
    Table,
    ToController,
    ToGroup,
    is_ours,
)

_FLOW_COMMANDS = {"add": ofp.OFPFC_ADD, "modify": ofp.OFPFC_MODIFY_STRICT, "delete": ofp.OFPFC_DELETE_STRICT}
_GROUP_COMMANDS = {"add": ofp.OFPGC_ADD, "modify": ofp.OFPGC_MODIFY, "delete": ofp.OFPGC_DELETE}
_METER_COMMANDS = {"add": ofp.OFPMC_ADD, "modify": ofp.OFPMC_MODIFY, "delete": ofp.OFPMC_DELETE}
_GROUP_TYPES: dict[Literal["select", "fast_failover"], int] = {
    "select": ofp.OFPGT_SELECT,
    "fast_failover": ofp.OFPGT_FF,
}
_GROUP_KINDS = {number: kind for kind, number in _GROUP_TYPES.items()}
_METER_FLAGS = ofp.OFPMF_PKTPS | ofp.OFPMF_BURST
_MASKS = [str(IPv4Address(((1 << length) - 1) << (32 - length))) for length in range(33)]
_LENGTHS = {mask: length for length, mask in enumerate(_MASKS)}
_TABLES = frozenset(map(int, Table))
_UNSUPPORTED = (1 << 64) - 1
_PLAIN_FIELDS = ("in_port", "eth_type", "eth_dst", "ip_proto")
_PREFIX_FIELDS = ("ipv4_src", "ipv4_dst", "arp_tpa")
_PORT_FIELDS = {
    (IP_TCP, "src_port"): "tcp_src",
    (IP_TCP, "dst_port"): "tcp_dst",
    (IP_UDP, "src_port"): "udp_src",
    (IP_UDP, "dst_port"): "udp_dst",
}
_PORTS_READ = {wire: (protocol, name) for (protocol, name), wire in _PORT_FIELDS.items()}
_EVERY_BIT = 0xFFFF
_PACKET_OUT = struct.Struct("!BBHIIIH6xHHIH6x")


# ---- rules to messages


def mod_message(mod: RuleMod) -> Any:
    """The message that carries out ``mod``. Raises ``ValueError`` for what no switch would give back."""
    if isinstance(mod.rule, FlowRule):
        return _flow_mod(mod.op, mod.rule)
    if isinstance(mod.rule, GroupRule):
        return _group_mod(mod.op, mod.rule)
    return _meter_mod(mod.op, mod.rule)


def _flow_mod(op: str, rule: FlowRule) -> Any:
    """Modify and delete reach only entries with our cookie. A modify keeps the entry's cookie, counters and duration
    (section 6.4): an entry that changes its owner has to be added over the old one."""
    table, priority, match = rule.key
    return ofp_parser.OFPFlowMod(
        PROTOCOL,
        cookie=rule.cookie,
        cookie_mask=0 if op == "add" else COOKIE_MASK,
        table_id=int(table),
        command=_FLOW_COMMANDS[op],
        priority=priority,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=_match_fields(match),
        instructions=[] if op == "delete" else _instructions(rule),
    )


def _match_fields(match: Match) -> Any:
    fields: dict[str, Any] = {}
    for name in _PLAIN_FIELDS:
        if (value := getattr(match, name)) is not None:
            fields[name] = value
    for name in _PREFIX_FIELDS:
        if (prefix := getattr(match, name)) is not None:
            fields[name] = _prefix_field(prefix)
    for name in ("src_port", "dst_port"):
        if (ports := getattr(match, name)) is not None:
            fields[_port_name(match, name)] = _port_field(ports)
    return ofp_parser.OFPMatch(**fields)


def _port_name(match: Match, name: str) -> str:
    """Section 7.2.3.8: ports need a protocol that has them, and that needs IP."""
    wire = _PORT_FIELDS.get((match.ip_proto or 0, name))
    if wire is None or match.eth_type != ETH_IPV4:
        raise ValueError(f"{name} needs IPv4 and TCP or UDP in {match}")
    return wire


def _port_field(ports: PortClass) -> int | tuple[int, int]:
    """One port has no mask, so that it reads back as it was written."""
    value, mask = ports
    if mask == _EVERY_BIT:
        return value
    if not 0 < mask < _EVERY_BIT or value & ~mask:
        raise ValueError(f"{ports} is not a class of ports that a switch would keep")
    return value, mask


def _prefix_field(prefix: Prefix) -> str | tuple[str, str]:
    """One host has no mask, so that it reads back as it was written."""
    address, length = prefix
    if length == 32:
        return address
    if length < 1 or int(IPv4Address(address)) & ((1 << (32 - length)) - 1):
        raise ValueError(f"{prefix} is not a prefix that a switch would keep")
    return address, _MASKS[length]


def _instructions(rule: FlowRule) -> list[Any]:
    instructions: list[Any] = []
    if rule.meter is not None:
        instructions.append(ofp_parser.OFPInstructionMeter(rule.meter))
    if rule.actions:
        actions = [_action_message(action) for action in rule.actions]
        instructions.append(ofp_parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions))
    if rule.goto is not None:
        instructions.append(ofp_parser.OFPInstructionGotoTable(int(rule.goto)))
    return instructions


def _action_message(action: Action) -> Any:
    if isinstance(action, Output):
        return ofp_parser.OFPActionOutput(action.port, 0)
    if isinstance(action, ToGroup):
        return ofp_parser.OFPActionGroup(action.group_id)
    return ofp_parser.OFPActionOutput(ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)


def _group_mod(op: str, rule: GroupRule) -> Any:
    weight = 1 if rule.kind == "select" else 0
    buckets = [
        ofp_parser.OFPBucket(
            weight,
            ofp.OFPP_ANY if bucket.watch_port is None else bucket.watch_port,
            ofp.OFPG_ANY if bucket.watch_group is None else bucket.watch_group,
            [_action_message(bucket.action)],
        )
        for bucket in rule.buckets
    ]
    kind = _GROUP_TYPES[rule.kind]
    return ofp_parser.OFPGroupMod(PROTOCOL, _GROUP_COMMANDS[op], kind, rule.group_id, [] if op == "delete" else buckets)


def _meter_mod(op: str, rule: MeterRule) -> Any:
    if rule.burst_packets < 1:
        raise ValueError(f"a switch would not keep the burst of {rule}: Open vSwitch makes it the rate")
    bands = [] if op == "delete" else [ofp_parser.OFPMeterBandDrop(rule.rate_pps, rule.burst_packets)]
    return ofp_parser.OFPMeterMod(PROTOCOL, _METER_COMMANDS[op], _METER_FLAGS, rule.meter_id, bands)


def barrier() -> Any:
    return ofp_parser.OFPBarrierRequest(PROTOCOL)


class PacketOut:
    """A frame to send out of one port (section 7.3.7), packed once: probes are the same every time."""

    def __init__(self, port: PortNo, frame: bytes) -> None:
        header = _PACKET_OUT.pack(
            ofp.OFP_VERSION,
            ofp.OFPT_PACKET_OUT,
            _PACKET_OUT.size + len(frame),
            0,
            ofp.OFP_NO_BUFFER,
            ofp.OFPP_CONTROLLER,
            16,
            ofp.OFPAT_OUTPUT,
            16,
            port,
            0,
        )
        self.buf = bytearray(header + frame)

    def set_xid(self, xid: int) -> None:
        struct.pack_into("!I", self.buf, 4, xid)

    def serialize(self) -> None:
        """Nothing is left to do; the sender asks every message."""


# ---- requests


def flow_stats_request(table: int = ofp.OFPTT_ALL) -> Any:
    """Every flow entry of ours in one table, or in all."""
    return _flow_request(ofp_parser.OFPFlowStatsRequest, table, COOKIE_MAGIC << 48, COOKIE_MASK)


def flow_count_request() -> Any:
    """How many flow entries there are, whoever owns them."""
    return _flow_request(ofp_parser.OFPAggregateStatsRequest, ofp.OFPTT_ALL, 0, 0)


def _flow_request(kind: Any, table: int, cookie: int, mask: int) -> Any:
    return kind(PROTOCOL, 0, table, ofp.OFPP_ANY, ofp.OFPG_ANY, cookie, mask, ofp_parser.OFPMatch())


def group_desc_request() -> Any:
    return ofp_parser.OFPGroupDescStatsRequest(PROTOCOL, 0)


def meter_config_request() -> Any:
    return ofp_parser.OFPMeterConfigStatsRequest(PROTOCOL, 0, ofp.OFPM_ALL)


def port_stats_request() -> Any:
    return ofp_parser.OFPPortStatsRequest(PROTOCOL, 0, ofp.OFPP_ANY)


# ---- messages to rules


def flow_rule(stats: Any) -> FlowRule | None:
    """The flow entry, or None when it is not ours or says what our rules cannot."""
    if not is_ours(stats.cookie) or stats.table_id not in _TABLES or stats.idle_timeout or stats.hard_timeout:
        return None
    match = _read_match(stats.match.items())
    if match is None:
        return None
    actions: tuple[Action, ...] = ()
    goto = meter = None
    for instruction in stats.instructions:
        if isinstance(instruction, ofp_parser.OFPInstructionMeter):
            meter = instruction.meter_id
        elif isinstance(instruction, ofp_parser.OFPInstructionGotoTable) and instruction.table_id in _TABLES:
            goto = Table(instruction.table_id)
        elif getattr(instruction, "type", None) == ofp.OFPIT_APPLY_ACTIONS:
            read = [_read_action(action) for action in instruction.actions]
            actions = tuple(action for action in read if action is not None)
            if len(actions) < len(read):
                return None
        else:
            return None
    return FlowRule(FlowKey(Table(stats.table_id), stats.priority, match), stats.cookie, actions, goto, meter)


def _read_match(items: Iterable[tuple[str, Any]]) -> Match | None:
    fields: dict[str, Any] = {}
    for name, value in items:
        if name in _PREFIX_FIELDS:
            address, mask = value if isinstance(value, tuple) else (value, _MASKS[32])
            if mask not in _LENGTHS:
                return None
            value = Prefix(address, _LENGTHS[mask])
        elif name in _PORTS_READ:
            protocol, name = _PORTS_READ[name]
            if fields.get("ip_proto", protocol) != protocol:
                return None
            value = PortClass(*value) if isinstance(value, tuple) else exactly(value)
        elif name not in _PLAIN_FIELDS or isinstance(value, tuple):
            return None
        fields[name] = value
    return Match(**fields)


def _read_action(action: Any) -> Action | None:
    if isinstance(action, ofp_parser.OFPActionGroup):
        return ToGroup(action.group_id)
    if not isinstance(action, ofp_parser.OFPActionOutput):
        return None
    if action.port != ofp.OFPP_CONTROLLER:
        return Output(PortNo(action.port))
    return ToController() if action.max_len == ofp.OFPCML_NO_BUFFER else None


def group_rule(stats: Any) -> GroupRule | None:
    """The group, or None when it says what our rules cannot."""
    kind = _GROUP_KINDS.get(stats.type)
    buckets = [_read_bucket(bucket) for bucket in stats.buckets]
    if kind is None or None in buckets:
        return None
    return GroupRule(stats.group_id, kind, tuple(bucket for bucket in buckets if bucket))


def _read_bucket(bucket: Any) -> Bucket | None:
    if len(bucket.actions) != 1:
        return None
    action = _read_action(bucket.actions[0])
    if action is None or isinstance(action, ToController):
        return None
    watch_port = None if bucket.watch_port == ofp.OFPP_ANY else PortNo(bucket.watch_port)
    watch_group = None if bucket.watch_group == ofp.OFPG_ANY else bucket.watch_group
    return Bucket(action, watch_port, watch_group)


def meter_rule(config: Any) -> MeterRule | None:
    """The meter, or None when it says what our rules cannot."""
    if config.flags & (ofp.OFPMF_KBPS | _METER_FLAGS) != _METER_FLAGS or len(config.bands) != 1:
        return None
    band = config.bands[0]
    if not isinstance(band, ofp_parser.OFPMeterBandDrop):
        return None
    return MeterRule(config.meter_id, band.rate, band.burst_size)


# ---- ports, counters, errors


def port(desc: Any) -> Port | None:
    """A port as the switch describes it (section 7.2.1); None for the switch's own reserved ports. ``curr_speed`` is
    in kbit/s."""
    if desc.port_no > ofp.OFPP_MAX:
        return None
    up = not desc.config & ofp.OFPPC_PORT_DOWN and not desc.state & ofp.OFPPS_LINK_DOWN
    return Port(PortNo(desc.port_no), _text(desc.name), desc.hw_addr, up, desc.curr_speed * 1000.0)


def switch_name(dpid: Dpid, descs: Iterable[Any]) -> str:
    """The name of the LOCAL port, which is the bridge's, or the dpid in hexadecimal."""
    local = next((desc for desc in descs if desc.port_no == ofp.OFPP_LOCAL), None)
    return _text(local.name) if local else f"{dpid:016x}"


def port_counts(stats: Iterable[Any]) -> dict[PortNo, PortCount]:
    """Bytes per port (section 7.3.5.6: all bits set where a counter is not supported)."""
    return {
        PortNo(s.port_no): PortCount(_supported(s.tx_bytes), _supported(s.rx_bytes))
        for s in stats
        if s.port_no <= ofp.OFPP_MAX
    }


def error_reason(message: Any) -> str:
    """``OFPET_BAD_ACTION(2): OFPBAC_BAD_OUT_GROUP(9)``."""
    if message.type == ofp.OFPET_EXPERIMENTER:
        return f"experimenter error {message.experimenter:#x}/{message.exp_type}"
    kind = ofp.ofp_error_type_to_str(message.type)
    return f"{kind}: {ofp.ofp_error_code_to_str(message.type, message.code)}"


def _supported(counter: int) -> int | None:
    return None if counter == _UNSUPPORTED else counter


def _text(name: bytes) -> str:
    return name.rstrip(b"\0").decode("utf-8", "replace")
