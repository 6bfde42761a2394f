"""Conversion of the messages that processes exchange, to bytes and back.

In: frozen messages of ``tables.messages`` and ``fabric.messages``. Out: a *packet*: MessagePack of a list of messages,
each with the name of its class. msgspec checks the type of every field; bytes that are not a packet raise ``Refused``.

The two ends of a link may have different versions. Messages of unknown types and unknown fields are ignored, and a
field with a default may be absent. A change that the other end must not ignore needs a new format of packets
(``store.members.LINK_FORMATS``).

msgspec tells the types of a union apart by tags, which dataclasses cannot have. Rules have fields with union types, so
they are converted to *forms*, msgspec structs of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import msgspec
import structlog

from controller.fabric.topology import Dpid, PortNo
from controller.log_limit import LimitedLog
from controller.tables.messages import HashedKeys, InstallStage, StageDone, SwitchResult, SwitchRules
from controller.tables.rules import (
    Action,
    AnyPort,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    MeterRule,
    Output,
    Rule,
    RuleMod,
    RuleSet,
    Stage,
    Table,
    ToController,
    ToGroup,
)
from signalbox.errors import SignalboxError

limited_log = LimitedLog(structlog.get_logger(__name__), period_s=60)

MOST_BYTES = 64 << 20
"""Largest packet in bytes, enough for the rules of a switch with half a million flow entries."""
USUAL_BYTES = 4 << 20
"""Largest packet with several messages, in bytes."""


class Refused(SignalboxError):
    """The bytes are not a packet, or a message is too large for a packet."""


# ---- forms of rules


Between = Callable[[], None]
"""Function that is called between the parts of a large message, so that other work can be done."""
_ENCODER = msgspec.msgpack.Encoder()


class _Struct(msgspec.Struct, array_like=True, gc=False):
    """Base class of the forms, which are packed as arrays of their fields."""


class _Action(NamedTuple):
    kind: Literal["port", "group", "controller", "any_port"]
    number: int = 0


class _Bucket(NamedTuple):
    action: _Action
    watch_port: PortNo | None
    watch_group: int | None


class _Flow(_Struct, tag="flow"):
    key: FlowKey
    cookie: int
    actions: tuple[_Action, ...]
    goto: Table | None
    meter: int | None
    distance: int


class _Group(_Struct, tag="group"):
    group_id: int
    kind: Literal["select", "fast_failover", "other"]
    buckets: msgspec.Raw
    """Tuple of ``_Bucket``, as packed bytes. Groups to many destinations share the same tuple, which is packed only
    once."""
    distance: int


class _Meter(_Struct, tag="meter"):
    meter_id: int
    rate_pps: int
    burst_packets: int


_Rule = _Flow | _Group | _Meter


class _Mod(NamedTuple):
    op: Literal["add", "modify", "delete"]
    rule: _Rule


class _SwitchRules(_Struct):
    dpid: Dpid
    rules: tuple[_Rule, ...]
    foreign: int
    foreign_keys: tuple[int, ...] | None
    """Hashes of ``HashedKeys``; None if there are no keys."""
    is_partial: bool


class _Result(NamedTuple):
    rejected: tuple[tuple[_Mod, str], ...]
    timed_out: bool


class _StageDone(_Struct):
    change_id: int
    results: dict[Dpid, _Result]


class _InstallStage(_Struct):
    change_id: int
    name: str
    mods: dict[Dpid, msgspec.Raw]
    """Changes by switch. They are read one switch at a time, since reading all together may take half a second."""
    pause_s: float


_MODS = msgspec.msgpack.Decoder(tuple[_Mod, ...])
_BUCKETS = msgspec.msgpack.Decoder(tuple[_Bucket, ...])
_packed: dict[int, tuple[tuple[Bucket, ...], msgspec.Raw]] = {}
"""Bytes of tuples of buckets, by the identity of the tuple, because hashing a tuple takes as long as packing it."""
MOST_PACKED = 1 << 10


def _action(action: Action) -> _Action:
    match action:
        case Output(port):
            return _Action("port", port)
        case ToGroup(group_id):
            return _Action("group", group_id)
        case ToController():
            return _Action("controller")
        case AnyPort():
            return _Action("any_port")


def _read_action(action: _Action) -> Action:
    match action.kind:
        case "port":
            return Output(PortNo(action.number))
        case "group":
            return ToGroup(action.number)
        case "controller":
            return ToController()
        case "any_port":
            return AnyPort()


def _rule(rule: Rule) -> _Rule:
    match rule:
        case FlowRule(key, cookie, actions, goto, meter, distance):
            return _Flow(key, cookie, tuple(map(_action, actions)), goto, meter, distance)
        case GroupRule(group_id, kind, buckets, distance):
            return _Group(group_id, kind, _pack_buckets(buckets), distance)
        case MeterRule(meter_id, rate_pps, burst_packets):
            return _Meter(meter_id, rate_pps, burst_packets)


def _read_rule(form: _Rule) -> Rule:
    match form:
        case _Flow():
            actions = tuple(map(_read_action, form.actions))
            return FlowRule(form.key, form.cookie, actions, form.goto, form.meter, form.distance)
        case _Group():
            return GroupRule(form.group_id, form.kind, _read_buckets(bytes(form.buckets)), form.distance)
        case _Meter():
            return MeterRule(form.meter_id, form.rate_pps, form.burst_packets)


def _pack_buckets(buckets: tuple[Bucket, ...]) -> msgspec.Raw:
    known = _packed.get(id(buckets))
    if known is None:
        forms = [_Bucket(_action(each.action), each.watch_port, each.watch_group) for each in buckets]
        if len(_packed) >= MOST_PACKED:
            _packed.clear()
        known = _packed[id(buckets)] = buckets, msgspec.Raw(_ENCODER.encode(forms))
    return known[1]


@lru_cache(maxsize=MOST_PACKED)
def _read_buckets(data: bytes) -> tuple[Bucket, ...]:
    return tuple(map(_read_bucket, _BUCKETS.decode(data)))


def _read_bucket(bucket: _Bucket) -> Bucket:
    action = _read_action(bucket.action)
    if not isinstance(action, Output | ToGroup):
        raise msgspec.ValidationError(f"a bucket cannot have the action {bucket.action.kind!r}")
    return Bucket(action, bucket.watch_port, bucket.watch_group)


def _mod(mod: RuleMod) -> _Mod:
    return _Mod(mod.op, _rule(mod.rule))


def _read_mod(form: _Mod) -> RuleMod:
    return RuleMod(form.op, _read_rule(form.rule))


def _switch_rules(message: SwitchRules) -> _SwitchRules:
    rules = message.rules
    forms = (_rule(rule) for kind in (rules.flows, rules.groups, rules.meters) for rule in kind.values())
    keys = message.foreign_keys
    hashes = tuple(keys.hashes) if isinstance(keys, HashedKeys) else None
    return _SwitchRules(message.dpid, tuple(forms), message.foreign, hashes, message.is_partial)


def _read_switch_rules(form: _SwitchRules, _between: Between) -> SwitchRules:
    rules = [_read_rule(rule) for rule in form.rules]
    flows = (rule for rule in rules if isinstance(rule, FlowRule))
    groups = (rule for rule in rules if isinstance(rule, GroupRule))
    meters = (rule for rule in rules if isinstance(rule, MeterRule))
    keys = frozenset[FlowKey]() if form.foreign_keys is None else HashedKeys(form.foreign_keys)
    return SwitchRules(form.dpid, RuleSet.of(flows, groups, meters), form.foreign, keys, form.is_partial)


def _stage_done(message: StageDone) -> _StageDone:
    results = {
        dpid: _Result(tuple((_mod(mod), why) for mod, why in result.rejected), result.timed_out)
        for dpid, result in message.results.items()
    }
    return _StageDone(message.change_id, results)


def _read_stage_done(form: _StageDone, _between: Between) -> StageDone:
    results = {
        dpid: SwitchResult(tuple((_read_mod(mod), why) for mod, why in result.rejected), result.timed_out)
        for dpid, result in form.results.items()
    }
    return StageDone(form.change_id, results)


def _install_stage(message: InstallStage) -> _InstallStage:
    mods = {dpid: msgspec.Raw(_ENCODER.encode([*map(_mod, mods)])) for dpid, mods in message.stage.mods.items()}
    return _InstallStage(message.change_id, message.stage.name, mods, message.pause_s)


def _read_install_stage(form: _InstallStage, between: Between) -> InstallStage:
    mods = {}
    for dpid, of_switch in form.mods.items():
        mods[dpid] = tuple(map(_read_mod, _MODS.decode(of_switch)))
        between()
    return InstallStage(form.change_id, Stage(form.name, mods), form.pause_s)


_FORMS: Mapping[type, tuple[type, Callable[[Any], Any], Callable[[Any, Between], Any]]] = {
    SwitchRules: (_SwitchRules, _switch_rules, _read_switch_rules),
    StageDone: (_StageDone, _stage_done, _read_stage_done),
    InstallStage: (_InstallStage, _install_stage, _read_install_stage),
}
"""Form of each type of message that contains rules, and the functions that convert to the form and back."""


# ---- packets

Packed = msgspec.Raw
"""Packed message, a part of a packet."""

_PACKET = msgspec.msgpack.Decoder(tuple[tuple[str, msgspec.Raw], ...])


def pack(message: object) -> Packed:
    """Return the message as a part of a packet. Raises ``Refused`` if it is too large."""
    _, to_form, _ = _FORMS.get(type(message), (None, None, None))
    data = _ENCODER.encode((type(message).__name__, to_form(message) if to_form else message))
    return msgspec.Raw(_within_limit(data, type(message).__name__))


def first_ones(messages: Iterable[Packed]) -> int:
    """Return how many of the first messages fit into a packet of ``USUAL_BYTES``; at least one."""
    count = size = 0
    for each in messages:
        size += len(each)
        if count and size > USUAL_BYTES:
            break
        count += 1
    return count


def packet(messages: Iterable[Packed]) -> bytes:
    """Return a packet with these messages, in order. Raises ``Refused`` if it is too large."""
    return _within_limit(_ENCODER.encode(list(messages)), "a packet")


def _within_limit(data: bytes, what: str) -> bytes:
    if len(data) > MOST_BYTES:
        raise Refused(f"{what} has {len(data)} bytes; at most {MOST_BYTES} can be sent to another process")
    return data


class Reader:
    """Decoder of packets whose messages have one of the given ``types``.

    A union among ``types`` is the same as all types in the union."""

    def __init__(self, *types: Any) -> None:
        self._decoders = {}
        for kind in (each for union in types for each in get_args(union) or (union,)):
            form, _, read = _FORMS.get(kind, (kind, None, None))
            self._decoders[kind.__name__] = msgspec.msgpack.Decoder(form).decode, read

    def read(self, data: bytes, between: Between = lambda: None) -> list[Any]:
        """Return the messages in a packet; the list has None in the place of a message of an unknown type.

        Raises ``Refused`` if the bytes are not a packet."""
        if len(data) > MOST_BYTES:
            raise Refused(f"a packet has {len(data)} bytes; at most {MOST_BYTES} are read")
        name = "a packet"
        messages: list[Any] = []
        try:
            for name, body in _PACKET.decode(data):
                if name not in self._decoders:
                    limited_log.warning("ignoring messages of an unknown type", type=ascii(name[:64]))
                    messages.append(None)
                    continue
                decode, read = self._decoders[name]
                message = decode(body)
                messages.append(read(message, between) if read else message)
        except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
            raise Refused(f"{name} cannot be read: {error}") from None
        return messages
