"""Conversion of the messages that processes exchange, to bytes and back.

In: frozen messages of ``tables.messages`` and ``fabric.messages``. Out: a *packet*: MessagePack of a list of messages,
each with the name of its class. msgspec checks the type of every field; bytes that are not a packet raise ``Refused``.

The two ends of a link may have different versions. Messages of unknown types and unknown fields are ignored, and a
field with a default may be absent. A change that the other end must not ignore needs a new format of packets
(``store.members.LINK_FORMATS``).

msgspec tells the types of a union apart by tags, which dataclasses cannot have. Rules are therefore msgspec structs.
Two messages with rules are converted to *forms*, whose fields msgspec can pack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

import msgspec
import structlog

from controller.fabric.topology import Dpid
from controller.log_limit import LimitedLog
from controller.tables.messages import HashedKeys, InstallStage, SwitchRules
from controller.tables.rules import (
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    MeterRule,
    PackedAsArray,
    Rule,
    RuleMod,
    RuleSet,
    Stage,
)
from signalbox.errors import SignalboxError

limited_log = LimitedLog(structlog.get_logger(__name__), period_s=60)

MOST_BYTES = 64 << 20
"""Largest packet in bytes, enough for the rules of a switch with half a million flow entries."""
USUAL_BYTES = 4 << 20
"""Largest packet with several messages, in bytes."""


class Refused(SignalboxError):
    """The bytes are not a packet, or a message is too large for a packet."""


# ---- forms of messages


Between = Callable[[], None]
"""Function that is called between the parts of a large message, so that other work can be done."""
_ENCODER = msgspec.msgpack.Encoder()
_MODS = msgspec.msgpack.Decoder(tuple[RuleMod, ...])


class _SwitchRules(PackedAsArray, frozen=True):
    dpid: Dpid
    rules: tuple[Rule, ...]
    foreign: int
    foreign_keys: tuple[int, ...] | None
    """Hashes of ``HashedKeys``; None if there are no keys."""
    is_partial: bool


class _InstallStage(PackedAsArray, frozen=True):
    change_id: int
    name: str
    mods: dict[Dpid, msgspec.Raw]
    """Changes by switch, not decoded yet: decoding all switches at once may take long."""
    pause_s: float


def _switch_rules(message: SwitchRules) -> _SwitchRules:
    rules, keys = message.rules, message.foreign_keys
    packed: tuple[Rule, ...] = (*rules.flows.values(), *rules.groups.values(), *rules.meters.values())
    hashes = tuple(keys.hashes) if isinstance(keys, HashedKeys) else None
    return _SwitchRules(message.dpid, packed, message.foreign, hashes, message.is_partial)


def _read_switch_rules(form: _SwitchRules, _between: Between) -> SwitchRules:
    shared: dict[tuple[Bucket, ...], tuple[Bucket, ...]] = {}  # a leaf has many groups with the same buckets
    groups = (
        GroupRule(rule.group_id, rule.kind, shared.setdefault(rule.buckets, rule.buckets), rule.distance)
        for rule in form.rules
        if isinstance(rule, GroupRule)
    )
    flows = (rule for rule in form.rules if isinstance(rule, FlowRule))
    meters = (rule for rule in form.rules if isinstance(rule, MeterRule))
    keys = frozenset[FlowKey]() if form.foreign_keys is None else HashedKeys(form.foreign_keys)
    return SwitchRules(form.dpid, RuleSet.of(flows, groups, meters), form.foreign, keys, form.is_partial)


def _install_stage(message: InstallStage) -> _InstallStage:
    mods = {dpid: msgspec.Raw(_ENCODER.encode(mods)) for dpid, mods in message.stage.mods.items()}
    return _InstallStage(message.change_id, message.stage.name, mods, message.pause_s)


def _read_install_stage(form: _InstallStage, between: Between) -> InstallStage:
    mods = {}
    for dpid, of_switch in form.mods.items():
        mods[dpid] = _MODS.decode(of_switch)
        between()
    return InstallStage(form.change_id, Stage(form.name, mods), form.pause_s)


_FORMS: Mapping[type, tuple[type, Callable[[Any], Any], Callable[[Any, Between], Any]]] = {
    SwitchRules: (_SwitchRules, _switch_rules, _read_switch_rules),
    InstallStage: (_InstallStage, _install_stage, _read_install_stage),
}
"""Forms by type of message: the type of the form, and the functions that convert to the form and back."""


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
