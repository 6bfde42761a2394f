"""Messages about what switches hold and count: read-backs, stages of changes and their results, counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from controller.fabric.messages import (
    ArpSeen,
    ConnectionRefused,
    LinkLost,
    LinkSeen,
    MastershipLost,
    PacketsRefused,
    PortChanged,
    ProbeAnew,
    ProbePorts,
    SendArpReply,
    SendArpRequest,
    SwitchConnected,
    SwitchFloods,
    SwitchLeft,
)
from controller.fabric.topology import Dpid, PortNo
from controller.tables.rules import AnyTable, FlowKey, RuleMod, RuleSet, Stage


@dataclass(frozen=True, slots=True)
class SwitchRules:
    """The read-back of one switch: everything with our cookie, all groups and meters, how many flow rules
    are foreign, and the keys of those of them that a rule of ours could have."""

    dpid: Dpid
    rules: RuleSet
    foreign: int
    foreign_keys: frozenset[FlowKey] = frozenset()


@dataclass(frozen=True, slots=True)
class SwitchResult:
    """``rejected``: mods the switch refused, with its reason. ``timed_out``: no barrier reply; state unknown."""

    rejected: tuple[tuple[RuleMod, str], ...] = ()
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class StageDone:
    """Switches of a stage have answered their barrier, left, or timed out. Those that are not in the ``results`` are
    late: another message follows for them, and the loop sends the next stage without them."""

    change_id: int
    results: Mapping[Dpid, SwitchResult]


class PortCount(NamedTuple):
    """Cumulative bytes. None where the switch does not support the counter."""

    tx_bytes: int | None
    rx_bytes: int | None


class RuleCount(NamedTuple):
    """Cumulative, of one flow entry; bytes with all headers from Ethernet on. ``packets``: None where the switch does
    not count them."""

    bytes: int
    packets: int | None


@dataclass(frozen=True, slots=True)
class Counters:
    """One poll of one switch: port counters, and counters of our rules that count (in the pinned table, and those that
    drop), read together; None where the switch refused or did not answer. ``at``: monotonic seconds when the last reply
    came in. ``punt_drops``: packets that were over a port's limit of what it may hand to the controller, so far; not
    asked for every time. ``due``: when the poll was due; None: ``at``."""

    dpid: Dpid
    at: float
    ports: Mapping[PortNo, PortCount] | None
    flows: Mapping[FlowKey, RuleCount] | None
    punt_drops: Mapping[PortNo, int] = field(default_factory=dict)
    due: float | None = None


@dataclass(frozen=True, slots=True)
class LearningCounters:
    """Counters of one switch's rules for pairs of jobs that are being learnt, read between two polls of everything."""

    dpid: Dpid
    at: float
    flows: Mapping[FlowKey, RuleCount]


@dataclass(frozen=True, slots=True)
class TablesRead:
    """The tables of one switch that Signalbox uses: ``entries`` of flow tables, also foreign ones; ``limits``: how many
    fit in, of the group and meter table too. None where they were not asked for, or the switch refused."""

    dpid: Dpid
    entries: Mapping[AnyTable, int] | None
    limits: Mapping[AnyTable, int] | None


@dataclass(frozen=True, slots=True)
class ReadRules:
    """Read back flows, groups and meters of a switch; answered by ``SwitchRules`` (nothing when it leaves)."""

    dpid: Dpid


@dataclass(frozen=True, slots=True)
class PollLearning:
    """From now on poll the rules for pairs of jobs that are being learnt on these switches only, and often."""

    dpids: frozenset[Dpid]


@dataclass(frozen=True, slots=True)
class PollHalfway:
    """Poll the counters of all switches once more, half an interval after the latest poll."""


@dataclass(frozen=True, slots=True)
class InstallStage:
    """Send the mods, then a barrier on each switch; answered by ``StageDone``. ``pause_s``: between deletions and
    what is added. The ``change_id`` of a stage that the extension sends is negative."""

    change_id: int
    stage: Stage
    pause_s: float = 0.0


FromSwitches = (
    SwitchConnected
    | SwitchLeft
    | MastershipLost
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
)
"""What the southbound reports."""

ToSwitches = (
    ReadRules | PollLearning | PollHalfway | ProbePorts | ProbeAnew | InstallStage | SendArpRequest | SendArpReply
)
"""What the southbound is asked to do."""
