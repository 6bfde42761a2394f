"""What goes into the control loop and what comes out: frozen messages and commands.

The edges (southbound, api, planning worker) put messages into the inbox; the loop answers each with commands that
the edges carry out. Wire types stop at the edges: nothing here knows OpenFlow, gRPC or Ryu.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from controller.fabric.topology import Dpid, Port, PortNo, PortRef
from controller.jobs.spec import JobId, JobSpec
from controller.planning.plan import NoPlan, Plan
from controller.planning.problem import PlanLimits, Problem
from controller.planning.questions.asked import Question
from controller.planning.questions.single_failures import Kind
from controller.tables.rules import FlowKey, RuleMod, RuleSet, Stage


class Strategy(StrEnum):
    """``shadow`` plans and reports what it would gain, and installs nothing."""

    ECMP = "ecmp"
    PLANNED = "planned"
    SHADOW = "shadow"


# ---- southbound -> loop


@dataclass(frozen=True, slots=True)
class SwitchConnected:
    """The OpenFlow handshake is done and the ports are known. A reconnect sends it again."""

    dpid: Dpid
    name: str
    ports: tuple[Port, ...]


@dataclass(frozen=True, slots=True)
class SwitchLeft:
    dpid: Dpid


@dataclass(frozen=True, slots=True)
class MastershipLost:
    """Another controller has become the master of the switch: it takes no changes from us any more, and is not ours
    until it connects again."""

    dpid: Dpid
    name: str


@dataclass(frozen=True, slots=True)
class PortChanged:
    dpid: Dpid
    port: Port
    removed: bool = False


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """Discovery believes in the directed link now (sent once, not per probe)."""

    src: PortRef
    dst: PortRef


@dataclass(frozen=True, slots=True)
class LinkLost:
    """Probes have stopped coming although both ports are up. Port and switch losses are not reported here."""

    src: PortRef
    dst: PortRef


@dataclass(frozen=True, slots=True)
class ArpSeen:
    """An ARP packet that a switch handed up. ``target_ip`` is asked for (request) or spoken to (reply)."""

    at: PortRef
    op: Literal["request", "reply"]
    sender_ip: str
    sender_mac: str
    target_ip: str


@dataclass(frozen=True, slots=True)
class SwitchRules:
    """The read-back of one switch: everything with our cookie, all groups and meters, how many flow rules are somebody
    else's, and the keys of those of them that a rule of ours could have."""

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


@dataclass(frozen=True, slots=True)
class PortCount:
    """Cumulative bytes. None where the switch does not support the counter."""

    tx_bytes: int | None
    rx_bytes: int | None


@dataclass(frozen=True, slots=True)
class Counters:
    """One poll of one switch: port counters, and byte counters of the pinned table's rules of ours, read together;
    empty where the switch refused or did not answer. ``at``: monotonic seconds when the reply came in. ``punt_drops``:
    packets that were over a port's limit of what it may hand to the controller, so far; not asked for every time."""

    dpid: Dpid
    at: float
    ports: Mapping[PortNo, PortCount]
    flows: Mapping[FlowKey, int]
    punt_drops: Mapping[PortNo, int] = field(default_factory=dict)


RefusalReason = Literal["malformed", "version", "silent", "not_reading", "tls", "duplicate_dpid"]


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """An OpenFlow connection was ended for what came by it, or failed to. ``malformed``: bytes that are not OpenFlow.
    ``version``: none in common. ``silent``: no handshake in time. ``not_reading``: what it was sent piled up. ``tls``:
    no or a wrong certificate. ``duplicate_dpid``: a second switch with a known dpid. ``peer``: its address and port."""

    peer: str
    dpid: Dpid | None
    reason: RefusalReason


PacketRefusal = Literal["foreign", "malformed", "forged", "replayed", "reflected", "not_a_port", "malformed_arp"]


class RefusedPacket(NamedTuple):
    """A packet that came in at ``at`` and is not believed. ``foreign``: LLDP of somebody else. ``malformed``: our LLDP,
    not whole. ``forged``: not signed with this process's key. ``replayed``: a probe that was used before, or that is
    old. ``reflected``: sent back into the port it left. ``not_a_port``: from or to a port that is not up.
    ``malformed_arp``: not whole, or in another station's name."""

    at: PortRef
    reason: PacketRefusal


@dataclass(frozen=True, slots=True)
class PacketsRefused:
    """How many packets were refused since the last such message, which is a second ago at least."""

    counts: Mapping[RefusedPacket, int]


# ---- api -> loop. The loop resolves ``reply`` (with a value or a SignalboxError) through a Reply command.


@dataclass(frozen=True, slots=True)
class RegisterJob:
    """Replies with the ``JobId``."""

    spec: JobSpec
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class DeregisterJob:
    job_id: JobId
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Replies with the seconds left."""

    job_id: JobId
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class IterationTime:
    index: int
    duration_s: float
    communication_s: float


@dataclass(frozen=True, slots=True)
class ReportIterations:
    job_id: JobId
    iterations: tuple[IterationTime, ...]
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class Replan:
    """Replies with a ``ReplanOutcome``."""

    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class SetStrategy:
    """Replies with a ``StrategySet`` after the last barrier."""

    strategy: Strategy
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class Explain:
    """Is the network what slows the job? Replies with the fields of ``planning.explain_words``."""

    job_id: JobId
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What would each single failure do? Replies with the fields of ``planning.what_if_words``. ``top``: outcomes
    wanted, None for all."""

    kinds: frozenset[Kind]
    top: int | None
    within_s: float
    reply: Future[Any] = field(default_factory=Future, compare=False)


Request = RegisterJob | DeregisterJob | RenewLease | ReportIterations | Replan | SetStrategy | Explain | WhatIf


@dataclass(frozen=True, slots=True)
class ReplanOutcome:
    outcome: Literal["adopted", "kept", "no plan"]
    reason: str
    plan: Plan | None


@dataclass(frozen=True, slots=True)
class StrategySet:
    strategy: Strategy
    install_s: float
    pins: int


# ---- planning worker -> loop


@dataclass(frozen=True, slots=True)
class Planned:
    """The worker's answer to one ``SolvePlan``. ``repair``: new paths for flows whose own have gone; the plan itself
    follows."""

    answer: Plan | NoPlan
    repair: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    """What published schemes make of the problem of that generation, sent after its plan: their worst levels."""

    generation: int
    baseline_levels: Mapping[str, float]


# ---- timer -> loop


@dataclass(frozen=True, slots=True)
class Tick:
    """Sent a few times a second; time-outs, leases and periodic work happen on it."""


Message = (
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
    | ConnectionRefused
    | PacketsRefused
    | Request
    | Planned
    | Compared
    | Tick
)


# ---- loop -> southbound


@dataclass(frozen=True, slots=True)
class ReadRules:
    """Read back flows, groups and meters of a switch; answered by ``SwitchRules`` (nothing when it leaves)."""

    dpid: Dpid


@dataclass(frozen=True, slots=True)
class ProbePorts:
    """These switches have confirmed their rules and hand probes up from now on: probe what is not linked yet."""

    dpids: frozenset[Dpid]


@dataclass(frozen=True, slots=True)
class InstallStage:
    """Send the mods, then a barrier on each switch; answered by ``StageDone``."""

    change_id: int
    stage: Stage


@dataclass(frozen=True, slots=True)
class SendArpRequest:
    """Ask for ``ip`` out of each of these edge ports, as an ARP probe (RFC 5227: sender address 0.0.0.0)."""

    ip: str
    ports: tuple[PortRef, ...]


@dataclass(frozen=True, slots=True)
class SendArpReply:
    """Tell the asker at ``at`` that ``ip`` is at ``mac``."""

    at: PortRef
    asker_ip: str
    asker_mac: str
    ip: str
    mac: str


# ---- loop -> planning worker


@dataclass(frozen=True, slots=True)
class SolvePlan:
    """A waiting request is replaced by a newer one; the one being solved is finished."""

    problem: Problem
    limits: PlanLimits


# ---- loop -> foresight


@dataclass(frozen=True, slots=True)
class Foresee:
    """Answer the question, which may take many plans; the future is resolved without the loop."""

    question: Question
    reply: Future[Any] = field(compare=False)


# ---- loop -> api, store


@dataclass(frozen=True, slots=True)
class Reply:
    """Resolve the future with ``value``; a ``SignalboxError`` becomes its exception. The status that shows what the
    request did is published first: the API reads it there once the reply is in."""

    future: Future[Any]
    value: object


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a restart should know: the accepted jobs, the strategy set last (None: the configured one), and the shares
    of the subflows per split flow (source, destination), which no rule holds."""

    specs: tuple[JobSpec, ...] = ()
    strategy: Strategy | None = None
    shares: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SaveState:
    """Write it to the state directory."""

    state: SavedState


Command = (
    ReadRules | ProbePorts | InstallStage | SendArpRequest | SendArpReply | SolvePlan | Foresee | Reply | SaveState
)
