"""Frozen rule types: what a switch holds, independent of any OpenFlow library.

``southbound.openflow_encode`` and ``openflow_decode`` turn them into messages and back; everything else compares and
diffs these. The cookie of a rule says who owns it: 16 bits of magic, 8 bits of table, 40 bits of owner (the job's hash
in the pinned table, 0 elsewhere). Neither cookies nor group ids hold a generation, so that a restarted controller
recognises its own rules (docs/explanation/restart-and-repair.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Literal, NamedTuple

from controller.fabric.topology import Dpid, PortNo
from controller.jobs.source_ports import PortClass

COOKIE_MAGIC = 0x5B17
COOKIE_MASK = 0xFFFF_0000_0000_0000

ETH_IPV4 = 0x0800
ETH_ARP = 0x0806
ETH_LLDP = 0x88CC
IP_TCP = 6
IP_UDP = 17
BROADCAST_MAC = "ff:ff:ff:ff:ff:ff"
CONTROLLER_MAC = "02:53:42:00:00:01"
"""Sender of the controller's ARP probes, locally administered: hosts answer a probe with unicast ARP to this address,
so table 0 has to hand that up."""


class Table(IntEnum):
    CONTROL = 0
    PINNED = 1
    DEFAULT = 2


@lru_cache(maxsize=1 << 18)
def stable_hash(bits: int, *parts: object) -> int:
    """A hash that is the same in every process: ``bits`` bits of BLAKE2b over the parts' texts."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - bits)


def cookie(table: Table, owner: int = 0) -> int:
    """The cookie of a rule of ``table`` owned by ``owner`` (40 bits)."""
    return COOKIE_MAGIC << 48 | int(table) << 40 | owner


def is_ours(value: int) -> bool:
    return value & COOKIE_MASK == COOKIE_MAGIC << 48


def cookie_owner(value: int) -> int:
    return value & ((1 << 40) - 1)


def job_owner(job_id: str) -> int:
    """The 40-bit owner that pins of a job carry."""
    return stable_hash(40, "job", job_id)


class Prefix(NamedTuple):
    """An IPv4 prefix; ``length`` 32 is one host."""

    address: str
    length: int = 32

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"


class Match(NamedTuple):
    """Fields that are None are wildcards. OpenFlow 1.3.5 section 7.2.3.7; prerequisites are the builder's duty: ports
    need an ``ip_proto`` (TCP or UDP), which needs IPv4."""

    in_port: PortNo | None = None
    eth_type: int | None = None
    eth_dst: str | None = None
    ipv4_src: Prefix | None = None
    ipv4_dst: Prefix | None = None
    arp_tpa: Prefix | None = None
    ip_proto: int | None = None
    src_port: PortClass | None = None
    dst_port: PortClass | None = None
    arp_spa: Prefix | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """Out of a port; an output to the port a packet came in by is dropped by the switch."""

    port: PortNo


@dataclass(frozen=True, slots=True)
class ToGroup:
    group_id: int


@dataclass(frozen=True, slots=True)
class ToController:
    """Packet-in with the whole packet."""


Action = Output | ToGroup | ToController


class FlowKey(NamedTuple):
    """What OpenFlow identifies a flow entry by (strict match)."""

    table: Table
    priority: int
    match: Match


@dataclass(frozen=True, slots=True)
class FlowRule:
    """Meter first, then actions, then the next table; no actions and no ``goto`` is a drop.

    ``distance``: switches still to cross to the destination. It orders installation, downstream first; no switch
    stores it and it does not count in comparisons.
    """

    key: FlowKey
    cookie: int
    actions: tuple[Action, ...] = ()
    goto: Table | None = None
    meter: int | None = None
    distance: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Bucket:
    """``watch_port`` or ``watch_group``: the bucket is live only while that is."""

    action: Output | ToGroup
    watch_port: PortNo | None = None
    watch_group: int | None = None


@dataclass(frozen=True, slots=True)
class GroupRule:
    group_id: int
    kind: Literal["select", "fast_failover"]
    buckets: tuple[Bucket, ...]
    distance: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class MeterRule:
    """Drop above ``rate_pps`` packets per second, after a burst of ``burst_packets``."""

    meter_id: int
    rate_pps: int
    burst_packets: int


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Everything of ours on one switch."""

    flows: Mapping[FlowKey, FlowRule] = field(default_factory=dict)
    groups: Mapping[int, GroupRule] = field(default_factory=dict)
    meters: Mapping[int, MeterRule] = field(default_factory=dict)

    @classmethod
    def of(
        cls, flows: Iterable[FlowRule] = (), groups: Iterable[GroupRule] = (), meters: Iterable[MeterRule] = ()
    ) -> RuleSet:
        return cls({f.key: f for f in flows}, {g.group_id: g for g in groups}, {m.meter_id: m for m in meters})

    def __len__(self) -> int:
        return len(self.flows) + len(self.groups) + len(self.meters)


Rule = FlowRule | GroupRule | MeterRule


@dataclass(frozen=True, slots=True)
class RuleMod:
    """One message to one switch. ``delete`` removes exactly the rule with this key or id."""

    op: Literal["add", "modify", "delete"]
    rule: Rule


@dataclass(frozen=True, slots=True)
class Stage:
    """Mods that may be sent in any order across switches; a barrier on each switch ends the stage, and the next stage
    starts when every barrier reply is in. Within one switch the order of the tuple is kept."""

    name: str
    mods: Mapping[Dpid, tuple[RuleMod, ...]]
