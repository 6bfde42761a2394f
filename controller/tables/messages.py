"""Messages about the rules and counters of switches: read rules, stages of changes and their results, counters."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from controller.fabric.messages import (
    ArpSeen,
    ConnectionRefused,
    ExpectLinks,
    GenerationRaised,
    LinkLost,
    LinkSeen,
    MastershipLost,
    PacketsRefused,
    PortChanged,
    ProbeAnew,
    ProbePorts,
    ProbesHeard,
    SendArpReply,
    SendArpRequest,
    SwitchConnected,
    SwitchesInReach,
    SwitchFloods,
    SwitchLeft,
    SwitchMoved,
)
from controller.fabric.topology import Dpid, PortNo
from controller.tables.rules import AnyTable, FlowKey, PackedAsArray, RuleMod, RuleSet, Stage


def key_hash(key: object) -> int:
    """Return a hash of a flow key, a signed number of 64 bits that is the same in every process."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest(), "big", signed=True)


class HashedKeys(Container[FlowKey]):
    """Set of flow keys that takes 8 bytes per key, because it keeps only hashes (``key_hash``)."""

    __slots__ = ("hashes",)

    def __init__(self, hashes: Iterable[int]) -> None:
        self.hashes = array("q", sorted(set(hashes)))

    def __contains__(self, key: object) -> bool:
        wanted = key_hash(key)
        at = bisect_left(self.hashes, wanted)
        return at < len(self.hashes) and self.hashes[at] == wanted


@dataclass(frozen=True, slots=True)
class SwitchRules:
    """Rules that were read from a switch: flows with Signalbox's cookie, and all groups and meters."""

    dpid: Dpid
    rules: RuleSet
    foreign: int
    """Number of foreign flow rules on the switch: without Signalbox's cookie, or in a form that Signalbox never
    installs."""
    foreign_keys: Container[FlowKey] = frozenset()
    """Keys of foreign flow rules on the switch that rules of Signalbox could have too.

    A switch holds only one rule per key, so a rule of Signalbox with such a key would overwrite the foreign rule."""
    is_partial: bool = False
    """Whether the switch has reported so many groups or meters that some were not read."""


class SwitchResult(PackedAsArray, frozen=True):
    """Result of a stage on one switch."""

    rejected: tuple[tuple[RuleMod, str], ...] = ()
    """Changes that the switch refused, each with the reason."""
    timed_out: bool = False
    """Whether the switch has not answered the barrier in time, so that its rules are unknown."""


class StageDone(PackedAsArray, frozen=True):
    """Results of a stage: these switches have answered their barrier, disconnected, or timed out.

    Switches that are missing in ``results`` are late, and another ``StageDone`` follows for them. Meanwhile the control
    loop sends the next stage to the other switches."""

    change_id: int
    results: Mapping[Dpid, SwitchResult]


class PortCount(NamedTuple):
    """Cumulative bytes of a port; None if the switch does not support the counter."""

    tx_bytes: int | None
    rx_bytes: int | None


class RuleCount(NamedTuple):
    """Cumulative counts of a flow rule."""

    bytes: int
    """Number of bytes, including all headers from Ethernet on."""
    packets: int | None
    """Number of packets; None if the switch does not count them."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of one poll of a switch, read together."""

    dpid: Dpid
    at: float
    """Time of the last reply in monotonic seconds."""
    ports: Mapping[PortNo, PortCount] | None
    """Counters of ports; None if the switch refused the request or did not answer."""
    flows: Mapping[FlowKey, RuleCount] | None
    """Counters of Signalbox's rules in the pinned table, and of its drop rules; None as for ``ports``."""
    punt_drops: Mapping[PortNo, int] = field(default_factory=dict)
    """Number of packets that the meter of each port has dropped so far; empty if the poll did not read meters."""
    due: float | None = None
    """Time when the poll was due, in monotonic seconds; None means ``at``."""


@dataclass(frozen=True, slots=True)
class LearningCounters:
    """Counters of one switch's rules for pairs that are being learnt, read between two full polls."""

    dpid: Dpid
    at: float
    flows: Mapping[FlowKey, RuleCount]


@dataclass(frozen=True, slots=True)
class TablesRead:
    """Number of entries, and capacity, of those tables of a switch that Signalbox uses."""

    dpid: Dpid
    entries: Mapping[AnyTable, int] | None
    """Number of entries of each flow table, including foreign ones; None if the switch refused or was not asked."""
    limits: Mapping[AnyTable, int] | None
    """Capacity of each table, including group and meter tables; None if the switch refused or was not asked."""


@dataclass(frozen=True, slots=True)
class ReadRules:
    """Read flows, groups and meters of a switch. ``SwitchRules`` is the answer, unless the switch disconnects."""

    dpid: Dpid


@dataclass(frozen=True, slots=True)
class PollLearning:
    """Poll the learning rules of these switches, and of no others, from now on.

    A learning rule counts one pair of hosts, to learn the traffic of a job. Learning rules are polled more often than
    other rules."""

    dpids: frozenset[Dpid]


@dataclass(frozen=True, slots=True)
class PollHalfway:
    """Poll the counters of all switches once more, half an interval after the latest poll."""


@dataclass(frozen=True, slots=True)
class InstallStage:
    """Send the changes, then a barrier, to each switch; ``StageDone`` is the answer."""

    change_id: int
    """Number of the stage; negative for stages of the extension."""
    stage: Stage
    pause_s: float = 0.0
    """Seconds to wait between deleting rules and adding rules; used for optical switches."""


FromSwitches = (
    SwitchConnected
    | SwitchMoved
    | SwitchLeft
    | MastershipLost
    | GenerationRaised
    | PortChanged
    | LinkSeen
    | LinkLost
    | ArpSeen
    | SwitchRules
    | StageDone
    | Counters
    | LearningCounters
    | TablesRead
    | ConnectionRefused
    | PacketsRefused
    | SwitchFloods
    | ProbesHeard
    | SwitchesInReach
)
"""Reports of the southbound."""

ToSwitches = (
    ReadRules
    | PollLearning
    | PollHalfway
    | ProbePorts
    | ProbeAnew
    | ProbesHeard
    | ExpectLinks
    | InstallStage
    | SendArpRequest
    | SendArpReply
)
"""Commands to the southbound."""
