"""Packets between processes: every type of message, and what is refused."""

import subprocess
import sys
import types
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid, PortNo
from controller.link import codec
from controller.link.codec import Reader, Refused, first_ones, pack, packet
from controller.link.messages import FROM_SOUTHBOUND, TO_SOUTHBOUND, Report, Taken, Welcome
from controller.tables.messages import (
    FromSwitches,
    HashedKeys,
    InstallStage,
    PollHalfway,
    ReadRules,
    StageDone,
    SwitchRules,
    ToSwitches,
    key_hash,
)
from controller.tables.rules import (
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    RuleSet,
    Stage,
    Table,
)

A = Dpid(1)

UPWARDS = (Report, *get_args(FromSwitches))
DOWNWARDS = (Welcome, Taken, *get_args(ToSwitches))


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Return instances of a type as messages have it, with integers of at most 64 bits."""
    if isinstance(kind, NewType):
        return values(kind.__supertype__)
    if kind is RuleSet:
        rules = (st.lists(values(rule), max_size=2) for rule in (FlowRule, GroupRule, MeterRule))
        return st.builds(RuleSet.of, *rules)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of([values(each) for each in arguments])
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*map(values, arguments))
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is frozenset:
        return st.frozensets(values(arguments[0]), max_size=3)
    if origin is Mapping:
        return st.dictionaries(*map(values, arguments), max_size=3)
    if origin is Container:
        return st.just(frozenset())
    if kind is int:
        return st.integers(-(1 << 63), (1 << 64) - 1)
    if kind is float:
        return st.floats(allow_nan=False)
    if is_dataclass(kind) or issubclass(kind, tuple | msgspec.Struct):
        return st.builds(kind, **{name: values(hint) for name, hint in get_type_hints(kind).items()})
    return st.from_type(kind)


@pytest.mark.parametrize(
    ("reader", "kind"),
    [*((FROM_SOUTHBOUND, kind) for kind in UPWARDS), *((TO_SOUTHBOUND, kind) for kind in DOWNWARDS)],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
@settings(max_examples=8)
@given(data=st.data())
def test_every_message_is_read_as_it_was(reader: Reader, kind: type, data: st.DataObject) -> None:
    messages = data.draw(st.lists(values(kind), min_size=1, max_size=2))
    assert reader.read(packet(map(pack, messages))) == messages


def test_sets_of_hashed_keys_keep_their_hashes() -> None:
    key, other = FlowKey(Table.PINNED, 1, Match(eth_type=0x800)), FlowKey(Table.PINNED, 2, Match())
    message = SwitchRules(A, RuleSet(), 1, HashedKeys([key_hash(key)]))
    (read,) = FROM_SOUTHBOUND.read(packet([pack(message)]))
    assert key in read.foreign_keys
    assert other not in read.foreign_keys


def test_the_hash_of_a_key_is_the_same_in_every_process() -> None:
    names = "from controller.tables.messages import key_hash; from controller.tables.rules import *"
    key = "FlowKey(Table.CONTROL, 7, Match(eth_dst='02:00:00:00:00:01', ip_dst=Prefix('10.0.0.0', 24)))"
    run = [sys.executable, "-c", f"{names}; print(key_hash({key}))"]
    found = {subprocess.run(run, env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}, capture_output=True,
                            text=True, check=True).stdout for seed in ("1", "2")}  # fmt: skip
    assert len(found) == 1


@settings(max_examples=30)
@given(st.data())
def test_truncated_packets_are_refused(data: st.DataObject) -> None:
    whole = packet(pack(message) for message in data.draw(st.lists(values(InstallStage), min_size=1, max_size=2)))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(Refused):
        TO_SOUTHBOUND.read(whole[:cut])


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_else(data: bytes) -> None:
    with suppress(Refused):
        assert isinstance(FROM_SOUTHBOUND.read(data), list)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (("SwitchLeft", {"dpid": "1"}), "SwitchLeft cannot be read: Expected `int`, got `str` - at `$.dpid`"),
        (("SwitchLeft", {}), "SwitchLeft cannot be read: Object missing required field `dpid`"),
        (
            ("TablesRead", {"dpid": 1, "entries": {9: 1}, "limits": None}),
            "TablesRead cannot be read: Invalid enum value 9",
        ),
    ],
)
def test_malformed_messages_are_refused(message: object, why: str) -> None:
    with pytest.raises(Refused) as error:
        FROM_SOUTHBOUND.read(msgspec.msgpack.encode([message]))
    assert str(error.value).startswith(why)


def test_an_action_that_a_bucket_cannot_have_is_refused() -> None:
    group = ["group", 1, "select", [[["controller", 0], None, None]], 0]
    data = msgspec.msgpack.encode([("InstallStage", [1, "install", {1: [["add", group]]}, 0.0])])
    with pytest.raises(Refused, match="Invalid value 'controller'"):
        TO_SOUTHBOUND.read(data)


def test_groups_with_the_same_buckets_share_them_after_reading() -> None:
    buckets = tuple(Bucket(Output(PortNo(port)), PortNo(port)) for port in range(1, 4))
    rules = RuleSet.of(groups=[GroupRule(number, "select", buckets) for number in (1, 2)])
    (read,) = FROM_SOUTHBOUND.read(packet([pack(SwitchRules(A, rules, 0))]))
    one, other = read.rules.groups.values()
    assert one.buckets == buckets
    assert one.buckets is other.buckets


def test_messages_are_divided_into_packets_of_a_usual_size(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [pack(ReadRules(A))] * 3
    assert first_ones(messages) == 3
    monkeypatch.setattr(codec, "USUAL_BYTES", 2 * len(messages[0]))
    assert first_ones(messages) == 2
    monkeypatch.setattr(codec, "USUAL_BYTES", 0)
    assert (first_ones(messages), first_ones([])) == (1, 0)


def test_other_work_can_be_done_between_the_switches_of_a_stage() -> None:
    stage = InstallStage(1, Stage("install", {A: (), Dpid(2): ()}))
    turns: list[None] = []
    assert TO_SOUTHBOUND.read(packet([pack(stage)]), lambda: turns.append(None)) == [stage]
    assert len(turns) == 2


def test_large_packets_are_neither_made_nor_read(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = pack(PollHalfway()), packet([pack(ReadRules(A))] * 10)
    monkeypatch.setattr(codec, "MOST_BYTES", len(large) - 1)
    with pytest.raises(Refused, match="at most"):
        TO_SOUTHBOUND.read(large)
    with pytest.raises(Refused, match="can be sent"):
        packet([pack(ReadRules(A))] * 10)
    assert TO_SOUTHBOUND.read(packet([small])) == [PollHalfway()]


def test_fields_and_messages_of_a_newer_version_are_ignored() -> None:
    data = msgspec.msgpack.encode(
        [("ReadRules", {"dpid": 1, "newer": [1]}), ("SwitchEaten", {}), ("Taken", {"count": 2})]
    )
    assert TO_SOUTHBOUND.read(data) == [ReadRules(A), None, Taken(2)]
    assert FROM_SOUTHBOUND.read(data) == [None, None, None], "messages of the other direction"


@pytest.mark.parametrize("kind", [InstallStage, StageDone, SwitchRules])
@settings(max_examples=15)
@given(data=st.data())
def test_further_fields_of_messages_with_rules_are_ignored(kind: type, data: st.DataObject) -> None:
    reader = TO_SOUTHBOUND if kind is InstallStage else FROM_SOUTHBOUND
    message = data.draw(values(kind))
    name, body = msgspec.msgpack.decode(pack(message), strict=False)
    assert reader.read(msgspec.msgpack.encode([(name, [*body, "newer"])])) == [message]
