import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_FIELD: _ClassVar[ErrorReason]
    ERROR_REASON_NO_SUCH_JOB: _ClassVar[ErrorReason]
    ERROR_REASON_JOB_DEREGISTERED: _ClassVar[ErrorReason]
    ERROR_REASON_LEASE_RAN_OUT: _ClassVar[ErrorReason]
    ERROR_REASON_JOB_TAKEN_OVER: _ClassVar[ErrorReason]
    ERROR_REASON_JOB_EXISTS: _ClassVar[ErrorReason]
    ERROR_REASON_WRONG_LEASE_TOKEN: _ClassVar[ErrorReason]
    ERROR_REASON_CONFLICT: _ClassVar[ErrorReason]
    ERROR_REASON_LIMIT_REACHED: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_ALLOWED: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_SAVED: _ClassVar[ErrorReason]
    ERROR_REASON_STOPPING: _ClassVar[ErrorReason]
    ERROR_REASON_TOO_SLOW: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
    ERROR_REASON_CONCURRENT_UPDATE: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_KNOWN_YET: _ClassVar[ErrorReason]
    ERROR_REASON_NO_SUCH_METHOD: _ClassVar[ErrorReason]
    ERROR_REASON_CONNECTIONS_NOT_ANNOUNCED: _ClassVar[ErrorReason]
    ERROR_REASON_SUPERSEDED: _ClassVar[ErrorReason]
    ERROR_REASON_HOST_NOT_ALLOWED: _ClassVar[ErrorReason]
    ERROR_REASON_NO_LEADER: _ClassVar[ErrorReason]

class Algorithm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ALGORITHM_UNSPECIFIED: _ClassVar[Algorithm]
    ALGORITHM_RING_ALL_REDUCE: _ClassVar[Algorithm]
    ALGORITHM_RING_REDUCE_SCATTER: _ClassVar[Algorithm]
    ALGORITHM_RING_ALL_GATHER: _ClassVar[Algorithm]
    ALGORITHM_HALVING_DOUBLING_ALL_REDUCE: _ClassVar[Algorithm]
    ALGORITHM_ALL_TO_ALL: _ClassVar[Algorithm]
    ALGORITHM_BROADCAST: _ClassVar[Algorithm]
    ALGORITHM_PIPELINE_SEND: _ClassVar[Algorithm]
    ALGORITHM_RECURSIVE_DOUBLING_ALL_REDUCE: _ClassVar[Algorithm]
    ALGORITHM_ALL_REDUCE: _ClassVar[Algorithm]
    ALGORITHM_REDUCE_SCATTER: _ClassVar[Algorithm]
    ALGORITHM_ALL_GATHER: _ClassVar[Algorithm]

class Library(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LIBRARY_UNSPECIFIED: _ClassVar[Library]
    LIBRARY_GENERIC: _ClassVar[Library]
    LIBRARY_GLOO: _ClassVar[Library]
    LIBRARY_OPENMPI: _ClassVar[Library]
    LIBRARY_NCCL: _ClassVar[Library]

class Striping(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STRIPING_UNSPECIFIED: _ClassVar[Striping]
    STRIPING_PACED: _ClassVar[Striping]
    STRIPING_BY_SHARE: _ClassVar[Striping]
    STRIPING_EVEN: _ClassVar[Striping]
    STRIPING_COMMON_QUEUE: _ClassVar[Striping]

class Transport(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSPORT_UNSPECIFIED: _ClassVar[Transport]
    TRANSPORT_TCP: _ClassVar[Transport]
    TRANSPORT_ROCE_V2: _ClassVar[Transport]

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_PENDING: _ClassVar[JobState]
    JOB_STATE_ECMP: _ClassVar[JobState]
    JOB_STATE_PINNED: _ClassVar[JobState]
    JOB_STATE_PARTLY_PINNED: _ClassVar[JobState]

class DemandSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEMAND_SOURCE_UNSPECIFIED: _ClassVar[DemandSource]
    DEMAND_SOURCE_DECLARED: _ClassVar[DemandSource]
    DEMAND_SOURCE_CONFIRMED: _ClassVar[DemandSource]
    DEMAND_SOURCE_MEASURED: _ClassVar[DemandSource]
    DEMAND_SOURCE_LEARNING: _ClassVar[DemandSource]
    DEMAND_SOURCE_PROVISIONAL: _ClassVar[DemandSource]

class DemandFinding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEMAND_FINDING_UNSPECIFIED: _ClassVar[DemandFinding]
    DEMAND_FINDING_SILENT: _ClassVar[DemandFinding]
    DEMAND_FINDING_SLOWER: _ClassVar[DemandFinding]
    DEMAND_FINDING_OTHER_TRAFFIC: _ClassVar[DemandFinding]
    DEMAND_FINDING_OTHER_AMOUNTS: _ClassVar[DemandFinding]

class TimingState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIMING_STATE_UNSPECIFIED: _ClassVar[TimingState]
    TIMING_STATE_FREE: _ClassVar[TimingState]
    TIMING_STATE_ALIGNING: _ClassVar[TimingState]
    TIMING_STATE_KEEPING: _ClassVar[TimingState]
    TIMING_STATE_IGNORING: _ClassVar[TimingState]

class JobEndReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_END_REASON_UNSPECIFIED: _ClassVar[JobEndReason]
    JOB_END_REASON_DEREGISTERED: _ClassVar[JobEndReason]
    JOB_END_REASON_LEASE_RAN_OUT: _ClassVar[JobEndReason]
    JOB_END_REASON_TAKEN_OVER: _ClassVar[JobEndReason]

class OtherTableKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OTHER_TABLE_KIND_UNSPECIFIED: _ClassVar[OtherTableKind]
    OTHER_TABLE_KIND_SELECT_GROUPS: _ClassVar[OtherTableKind]
    OTHER_TABLE_KIND_FAST_FAILOVER_GROUPS: _ClassVar[OtherTableKind]
    OTHER_TABLE_KIND_METERS: _ClassVar[OtherTableKind]

class PartKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PART_KIND_UNSPECIFIED: _ClassVar[PartKind]
    PART_KIND_SWITCH: _ClassVar[PartKind]
    PART_KIND_LINK: _ClassVar[PartKind]
    PART_KIND_HOST: _ClassVar[PartKind]

class DroppedKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DROPPED_KIND_UNSPECIFIED: _ClassVar[DroppedKind]
    DROPPED_KIND_IPV6: _ClassVar[DroppedKind]
    DROPPED_KIND_MULTICAST: _ClassVar[DroppedKind]
    DROPPED_KIND_BROADCAST: _ClassVar[DroppedKind]
    DROPPED_KIND_DHCP: _ClassVar[DroppedKind]
    DROPPED_KIND_UNKNOWN_HOST: _ClassVar[DroppedKind]
    DROPPED_KIND_OTHER: _ClassVar[DroppedKind]

class PlanCertificate(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLAN_CERTIFICATE_UNSPECIFIED: _ClassVar[PlanCertificate]
    PLAN_CERTIFICATE_OPTIMAL: _ClassVar[PlanCertificate]
    PLAN_CERTIFICATE_GAP: _ClassVar[PlanCertificate]
    PLAN_CERTIFICATE_HEURISTIC: _ClassVar[PlanCertificate]

class RoutingScheme(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROUTING_SCHEME_UNSPECIFIED: _ClassVar[RoutingScheme]
    ROUTING_SCHEME_ECMP: _ClassVar[RoutingScheme]
    ROUTING_SCHEME_GREEDY: _ClassVar[RoutingScheme]
    ROUTING_SCHEME_EDGE_COLORING: _ClassVar[RoutingScheme]
    ROUTING_SCHEME_FIRST_FIT: _ClassVar[RoutingScheme]

class SharingObjective(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHARING_OBJECTIVE_UNSPECIFIED: _ClassVar[SharingObjective]
    SHARING_OBJECTIVE_WORST: _ClassVar[SharingObjective]
    SHARING_OBJECTIVE_GPU_SECONDS: _ClassVar[SharingObjective]
    SHARING_OBJECTIVE_WEIGHTED: _ClassVar[SharingObjective]

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    MODE_ECMP: _ClassVar[Mode]
    MODE_PLANNED: _ClassVar[Mode]
    MODE_SHADOW: _ClassVar[Mode]

class AlarmKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ALARM_KIND_UNSPECIFIED: _ClassVar[AlarmKind]
    ALARM_KIND_PLAN_WORSE_THAN_ECMP: _ClassVar[AlarmKind]
    ALARM_KIND_FLOWS_WITHOUT_PATH: _ClassVar[AlarmKind]
    ALARM_KIND_RULES_REFUSED: _ClassVar[AlarmKind]
    ALARM_KIND_MASTERSHIP_LOST: _ClassVar[AlarmKind]
    ALARM_KIND_DUPLICATE_DPID: _ClassVar[AlarmKind]
    ALARM_KIND_FOREIGN_RULES: _ClassVar[AlarmKind]
    ALARM_KIND_LLDP_MALFORMED: _ClassVar[AlarmKind]
    ALARM_KIND_LLDP_FORGED: _ClassVar[AlarmKind]
    ALARM_KIND_LLDP_REPLAYED: _ClassVar[AlarmKind]
    ALARM_KIND_LLDP_REFLECTED: _ClassVar[AlarmKind]
    ALARM_KIND_PUNT_LIMIT_EXCEEDED: _ClassVar[AlarmKind]
    ALARM_KIND_ADDRESSES_CLAIMED: _ClassVar[AlarmKind]
    ALARM_KIND_HOSTS_MISSING: _ClassVar[AlarmKind]
    ALARM_KIND_DEMAND_DIFFERS: _ClassVar[AlarmKind]
    ALARM_KIND_STATE_NOT_SAVED: _ClassVar[AlarmKind]
    ALARM_KIND_COUNTERS_STALE: _ClassVar[AlarmKind]
    ALARM_KIND_CONNECTIONS_REFUSED: _ClassVar[AlarmKind]
    ALARM_KIND_SWITCH_FLOODS: _ClassVar[AlarmKind]
    ALARM_KIND_GENERATION_AHEAD: _ClassVar[AlarmKind]
    ALARM_KIND_MEMBER_ABSENT: _ClassVar[AlarmKind]
    ALARM_KIND_MEMBER_UNLINKED: _ClassVar[AlarmKind]
    ALARM_KIND_SLOT_IGNORED: _ClassVar[AlarmKind]
    ALARM_KIND_SWITCH_DOWN: _ClassVar[AlarmKind]
    ALARM_KIND_LINK_DOWN: _ClassVar[AlarmKind]
    ALARM_KIND_HOST_DOWN: _ClassVar[AlarmKind]
    ALARM_KIND_FABRIC_INCOMPLETE: _ClassVar[AlarmKind]
    ALARM_KIND_INTERFACE_DARK: _ClassVar[AlarmKind]
    ALARM_KIND_TABLE_NEARLY_FULL: _ClassVar[AlarmKind]

class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEVERITY_UNSPECIFIED: _ClassVar[Severity]
    SEVERITY_WARNING: _ClassVar[Severity]
    SEVERITY_CRITICAL: _ClassVar[Severity]

class ReplanOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLAN_OUTCOME_UNSPECIFIED: _ClassVar[ReplanOutcome]
    REPLAN_OUTCOME_ADOPTED: _ClassVar[ReplanOutcome]
    REPLAN_OUTCOME_KEPT: _ClassVar[ReplanOutcome]
    REPLAN_OUTCOME_NO_PLAN: _ClassVar[ReplanOutcome]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_NOTHING: _ClassVar[Verdict]
    VERDICT_ROUTING: _ClassVar[Verdict]
    VERDICT_NIC: _ClassVar[Verdict]
    VERDICT_FABRIC: _ClassVar[Verdict]
    VERDICT_UNPROVEN: _ClassVar[Verdict]
    VERDICT_CUT_OFF: _ClassVar[Verdict]

class Direction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIRECTION_UNSPECIFIED: _ClassVar[Direction]
    DIRECTION_OUT: _ClassVar[Direction]
    DIRECTION_IN: _ClassVar[Direction]

class FailureKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILURE_KIND_UNSPECIFIED: _ClassVar[FailureKind]
    FAILURE_KIND_SPINE: _ClassVar[FailureKind]
    FAILURE_KIND_CABLE: _ClassVar[FailureKind]
    FAILURE_KIND_BUNDLE: _ClassVar[FailureKind]
    FAILURE_KIND_PARTS: _ClassVar[FailureKind]

class OutcomeBasis(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_BASIS_UNSPECIFIED: _ClassVar[OutcomeBasis]
    OUTCOME_BASIS_PLAN: _ClassVar[OutcomeBasis]
    OUTCOME_BASIS_REPAIR: _ClassVar[OutcomeBasis]
    OUTCOME_BASIS_BOUND: _ClassVar[OutcomeBasis]

class DrainState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DRAIN_STATE_UNSPECIFIED: _ClassVar[DrainState]
    DRAIN_STATE_MOVING: _ClassVar[DrainState]
    DRAIN_STATE_CONFIRMING: _ClassVar[DrainState]
    DRAIN_STATE_MEASURING: _ClassVar[DrainState]
    DRAIN_STATE_CARRYING: _ClassVar[DrainState]
    DRAIN_STATE_SAFE: _ClassVar[DrainState]

class EventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_KIND_UNSPECIFIED: _ClassVar[EventKind]
    EVENT_KIND_CONTROLLER: _ClassVar[EventKind]
    EVENT_KIND_FABRIC: _ClassVar[EventKind]
    EVENT_KIND_DRAIN: _ClassVar[EventKind]
    EVENT_KIND_RULES: _ClassVar[EventKind]
    EVENT_KIND_PLAN: _ClassVar[EventKind]
    EVENT_KIND_MODE: _ClassVar[EventKind]
    EVENT_KIND_JOB: _ClassVar[EventKind]
    EVENT_KIND_ALARM: _ClassVar[EventKind]
    EVENT_KIND_JOB_ALARM: _ClassVar[EventKind]

class RuleKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RULE_KIND_UNSPECIFIED: _ClassVar[RuleKind]
    RULE_KIND_FLOW: _ClassVar[RuleKind]
    RULE_KIND_GROUP: _ClassVar[RuleKind]
    RULE_KIND_METER: _ClassVar[RuleKind]

class RulePurpose(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RULE_PURPOSE_UNSPECIFIED: _ClassVar[RulePurpose]
    RULE_PURPOSE_LLDP: _ClassVar[RulePurpose]
    RULE_PURPOSE_ARP: _ClassVar[RulePurpose]
    RULE_PURPOSE_MISS: _ClassVar[RulePurpose]
    RULE_PURPOSE_PIN: _ClassVar[RulePurpose]
    RULE_PURPOSE_COUNTING: _ClassVar[RulePurpose]
    RULE_PURPOSE_LEARNING: _ClassVar[RulePurpose]
    RULE_PURPOSE_HOST: _ClassVar[RulePurpose]
    RULE_PURPOSE_ECMP: _ClassVar[RulePurpose]
    RULE_PURPOSE_PUNT_LIMIT: _ClassVar[RulePurpose]
    RULE_PURPOSE_ORPHAN: _ClassVar[RulePurpose]
    RULE_PURPOSE_FOUND: _ClassVar[RulePurpose]
    RULE_PURPOSE_DROP: _ClassVar[RulePurpose]

class MemberRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMBER_ROLE_UNSPECIFIED: _ClassVar[MemberRole]
    MEMBER_ROLE_LEADER: _ClassVar[MemberRole]
    MEMBER_ROLE_STANDBY: _ClassVar[MemberRole]
    MEMBER_ROLE_ABSENT: _ClassVar[MemberRole]
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_INVALID_FIELD: ErrorReason
ERROR_REASON_NO_SUCH_JOB: ErrorReason
ERROR_REASON_JOB_DEREGISTERED: ErrorReason
ERROR_REASON_LEASE_RAN_OUT: ErrorReason
ERROR_REASON_JOB_TAKEN_OVER: ErrorReason
ERROR_REASON_JOB_EXISTS: ErrorReason
ERROR_REASON_WRONG_LEASE_TOKEN: ErrorReason
ERROR_REASON_CONFLICT: ErrorReason
ERROR_REASON_LIMIT_REACHED: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_NOT_ALLOWED: ErrorReason
ERROR_REASON_NOT_SAVED: ErrorReason
ERROR_REASON_STOPPING: ErrorReason
ERROR_REASON_TOO_SLOW: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason
ERROR_REASON_CONCURRENT_UPDATE: ErrorReason
ERROR_REASON_NOT_KNOWN_YET: ErrorReason
ERROR_REASON_NO_SUCH_METHOD: ErrorReason
ERROR_REASON_CONNECTIONS_NOT_ANNOUNCED: ErrorReason
ERROR_REASON_SUPERSEDED: ErrorReason
ERROR_REASON_HOST_NOT_ALLOWED: ErrorReason
ERROR_REASON_NO_LEADER: ErrorReason
ALGORITHM_UNSPECIFIED: Algorithm
ALGORITHM_RING_ALL_REDUCE: Algorithm
ALGORITHM_RING_REDUCE_SCATTER: Algorithm
ALGORITHM_RING_ALL_GATHER: Algorithm
ALGORITHM_HALVING_DOUBLING_ALL_REDUCE: Algorithm
ALGORITHM_ALL_TO_ALL: Algorithm
ALGORITHM_BROADCAST: Algorithm
ALGORITHM_PIPELINE_SEND: Algorithm
ALGORITHM_RECURSIVE_DOUBLING_ALL_REDUCE: Algorithm
ALGORITHM_ALL_REDUCE: Algorithm
ALGORITHM_REDUCE_SCATTER: Algorithm
ALGORITHM_ALL_GATHER: Algorithm
LIBRARY_UNSPECIFIED: Library
LIBRARY_GENERIC: Library
LIBRARY_GLOO: Library
LIBRARY_OPENMPI: Library
LIBRARY_NCCL: Library
STRIPING_UNSPECIFIED: Striping
STRIPING_PACED: Striping
STRIPING_BY_SHARE: Striping
STRIPING_EVEN: Striping
STRIPING_COMMON_QUEUE: Striping
TRANSPORT_UNSPECIFIED: Transport
TRANSPORT_TCP: Transport
TRANSPORT_ROCE_V2: Transport
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_PENDING: JobState
JOB_STATE_ECMP: JobState
JOB_STATE_PINNED: JobState
JOB_STATE_PARTLY_PINNED: JobState
DEMAND_SOURCE_UNSPECIFIED: DemandSource
DEMAND_SOURCE_DECLARED: DemandSource
DEMAND_SOURCE_CONFIRMED: DemandSource
DEMAND_SOURCE_MEASURED: DemandSource
DEMAND_SOURCE_LEARNING: DemandSource
DEMAND_SOURCE_PROVISIONAL: DemandSource
DEMAND_FINDING_UNSPECIFIED: DemandFinding
DEMAND_FINDING_SILENT: DemandFinding
DEMAND_FINDING_SLOWER: DemandFinding
DEMAND_FINDING_OTHER_TRAFFIC: DemandFinding
DEMAND_FINDING_OTHER_AMOUNTS: DemandFinding
TIMING_STATE_UNSPECIFIED: TimingState
TIMING_STATE_FREE: TimingState
TIMING_STATE_ALIGNING: TimingState
TIMING_STATE_KEEPING: TimingState
TIMING_STATE_IGNORING: TimingState
JOB_END_REASON_UNSPECIFIED: JobEndReason
JOB_END_REASON_DEREGISTERED: JobEndReason
JOB_END_REASON_LEASE_RAN_OUT: JobEndReason
JOB_END_REASON_TAKEN_OVER: JobEndReason
OTHER_TABLE_KIND_UNSPECIFIED: OtherTableKind
OTHER_TABLE_KIND_SELECT_GROUPS: OtherTableKind
OTHER_TABLE_KIND_FAST_FAILOVER_GROUPS: OtherTableKind
OTHER_TABLE_KIND_METERS: OtherTableKind
PART_KIND_UNSPECIFIED: PartKind
PART_KIND_SWITCH: PartKind
PART_KIND_LINK: PartKind
PART_KIND_HOST: PartKind
DROPPED_KIND_UNSPECIFIED: DroppedKind
DROPPED_KIND_IPV6: DroppedKind
DROPPED_KIND_MULTICAST: DroppedKind
DROPPED_KIND_BROADCAST: DroppedKind
DROPPED_KIND_DHCP: DroppedKind
DROPPED_KIND_UNKNOWN_HOST: DroppedKind
DROPPED_KIND_OTHER: DroppedKind
PLAN_CERTIFICATE_UNSPECIFIED: PlanCertificate
PLAN_CERTIFICATE_OPTIMAL: PlanCertificate
PLAN_CERTIFICATE_GAP: PlanCertificate
PLAN_CERTIFICATE_HEURISTIC: PlanCertificate
ROUTING_SCHEME_UNSPECIFIED: RoutingScheme
ROUTING_SCHEME_ECMP: RoutingScheme
ROUTING_SCHEME_GREEDY: RoutingScheme
ROUTING_SCHEME_EDGE_COLORING: RoutingScheme
ROUTING_SCHEME_FIRST_FIT: RoutingScheme
SHARING_OBJECTIVE_UNSPECIFIED: SharingObjective
SHARING_OBJECTIVE_WORST: SharingObjective
SHARING_OBJECTIVE_GPU_SECONDS: SharingObjective
SHARING_OBJECTIVE_WEIGHTED: SharingObjective
MODE_UNSPECIFIED: Mode
MODE_ECMP: Mode
MODE_PLANNED: Mode
MODE_SHADOW: Mode
ALARM_KIND_UNSPECIFIED: AlarmKind
ALARM_KIND_PLAN_WORSE_THAN_ECMP: AlarmKind
ALARM_KIND_FLOWS_WITHOUT_PATH: AlarmKind
ALARM_KIND_RULES_REFUSED: AlarmKind
ALARM_KIND_MASTERSHIP_LOST: AlarmKind
ALARM_KIND_DUPLICATE_DPID: AlarmKind
ALARM_KIND_FOREIGN_RULES: AlarmKind
ALARM_KIND_LLDP_MALFORMED: AlarmKind
ALARM_KIND_LLDP_FORGED: AlarmKind
ALARM_KIND_LLDP_REPLAYED: AlarmKind
ALARM_KIND_LLDP_REFLECTED: AlarmKind
ALARM_KIND_PUNT_LIMIT_EXCEEDED: AlarmKind
ALARM_KIND_ADDRESSES_CLAIMED: AlarmKind
ALARM_KIND_HOSTS_MISSING: AlarmKind
ALARM_KIND_DEMAND_DIFFERS: AlarmKind
ALARM_KIND_STATE_NOT_SAVED: AlarmKind
ALARM_KIND_COUNTERS_STALE: AlarmKind
ALARM_KIND_CONNECTIONS_REFUSED: AlarmKind
ALARM_KIND_SWITCH_FLOODS: AlarmKind
ALARM_KIND_GENERATION_AHEAD: AlarmKind
ALARM_KIND_MEMBER_ABSENT: AlarmKind
ALARM_KIND_MEMBER_UNLINKED: AlarmKind
ALARM_KIND_SLOT_IGNORED: AlarmKind
ALARM_KIND_SWITCH_DOWN: AlarmKind
ALARM_KIND_LINK_DOWN: AlarmKind
ALARM_KIND_HOST_DOWN: AlarmKind
ALARM_KIND_FABRIC_INCOMPLETE: AlarmKind
ALARM_KIND_INTERFACE_DARK: AlarmKind
ALARM_KIND_TABLE_NEARLY_FULL: AlarmKind
SEVERITY_UNSPECIFIED: Severity
SEVERITY_WARNING: Severity
SEVERITY_CRITICAL: Severity
REPLAN_OUTCOME_UNSPECIFIED: ReplanOutcome
REPLAN_OUTCOME_ADOPTED: ReplanOutcome
REPLAN_OUTCOME_KEPT: ReplanOutcome
REPLAN_OUTCOME_NO_PLAN: ReplanOutcome
VERDICT_UNSPECIFIED: Verdict
VERDICT_NOTHING: Verdict
VERDICT_ROUTING: Verdict
VERDICT_NIC: Verdict
VERDICT_FABRIC: Verdict
VERDICT_UNPROVEN: Verdict
VERDICT_CUT_OFF: Verdict
DIRECTION_UNSPECIFIED: Direction
DIRECTION_OUT: Direction
DIRECTION_IN: Direction
FAILURE_KIND_UNSPECIFIED: FailureKind
FAILURE_KIND_SPINE: FailureKind
FAILURE_KIND_CABLE: FailureKind
FAILURE_KIND_BUNDLE: FailureKind
FAILURE_KIND_PARTS: FailureKind
OUTCOME_BASIS_UNSPECIFIED: OutcomeBasis
OUTCOME_BASIS_PLAN: OutcomeBasis
OUTCOME_BASIS_REPAIR: OutcomeBasis
OUTCOME_BASIS_BOUND: OutcomeBasis
DRAIN_STATE_UNSPECIFIED: DrainState
DRAIN_STATE_MOVING: DrainState
DRAIN_STATE_CONFIRMING: DrainState
DRAIN_STATE_MEASURING: DrainState
DRAIN_STATE_CARRYING: DrainState
DRAIN_STATE_SAFE: DrainState
EVENT_KIND_UNSPECIFIED: EventKind
EVENT_KIND_CONTROLLER: EventKind
EVENT_KIND_FABRIC: EventKind
EVENT_KIND_DRAIN: EventKind
EVENT_KIND_RULES: EventKind
EVENT_KIND_PLAN: EventKind
EVENT_KIND_MODE: EventKind
EVENT_KIND_JOB: EventKind
EVENT_KIND_ALARM: EventKind
EVENT_KIND_JOB_ALARM: EventKind
RULE_KIND_UNSPECIFIED: RuleKind
RULE_KIND_FLOW: RuleKind
RULE_KIND_GROUP: RuleKind
RULE_KIND_METER: RuleKind
RULE_PURPOSE_UNSPECIFIED: RulePurpose
RULE_PURPOSE_LLDP: RulePurpose
RULE_PURPOSE_ARP: RulePurpose
RULE_PURPOSE_MISS: RulePurpose
RULE_PURPOSE_PIN: RulePurpose
RULE_PURPOSE_COUNTING: RulePurpose
RULE_PURPOSE_LEARNING: RulePurpose
RULE_PURPOSE_HOST: RulePurpose
RULE_PURPOSE_ECMP: RulePurpose
RULE_PURPOSE_PUNT_LIMIT: RulePurpose
RULE_PURPOSE_ORPHAN: RulePurpose
RULE_PURPOSE_FOUND: RulePurpose
RULE_PURPOSE_DROP: RulePurpose
MEMBER_ROLE_UNSPECIFIED: MemberRole
MEMBER_ROLE_LEADER: MemberRole
MEMBER_ROLE_STANDBY: MemberRole
MEMBER_ROLE_ABSENT: MemberRole

class JobSpec(_message.Message):
    __slots__ = ("job_id", "endpoints", "groups", "collectives", "lease", "max_subflows", "transport", "transfers", "library", "striping", "rails", "reports_connections", "parallelizations", "provisional", "compute", "gpus", "work_per_iteration", "weight", "keeps_slots")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVES_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    MAX_SUBFLOWS_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    LIBRARY_FIELD_NUMBER: _ClassVar[int]
    STRIPING_FIELD_NUMBER: _ClassVar[int]
    RAILS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    PARALLELIZATIONS_FIELD_NUMBER: _ClassVar[int]
    PROVISIONAL_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    WORK_PER_ITERATION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    KEEPS_SLOTS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    endpoints: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedCompositeFieldContainer[ParallelGroup]
    collectives: _containers.RepeatedCompositeFieldContainer[Collective]
    lease: _duration_pb2.Duration
    max_subflows: int
    transport: Transport
    transfers: _containers.RepeatedCompositeFieldContainer[Transfer]
    library: Library
    striping: Striping
    rails: _containers.RepeatedCompositeFieldContainer[Rail]
    reports_connections: bool
    parallelizations: _containers.RepeatedCompositeFieldContainer[Parallelization]
    provisional: bool
    compute: _containers.RepeatedCompositeFieldContainer[Compute]
    gpus: int
    work_per_iteration: float
    weight: float
    keeps_slots: bool
    def __init__(self, job_id: _Optional[str] = ..., endpoints: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[_Union[ParallelGroup, _Mapping]]] = ..., collectives: _Optional[_Iterable[_Union[Collective, _Mapping]]] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_subflows: _Optional[int] = ..., transport: _Optional[_Union[Transport, str]] = ..., transfers: _Optional[_Iterable[_Union[Transfer, _Mapping]]] = ..., library: _Optional[_Union[Library, str]] = ..., striping: _Optional[_Union[Striping, str]] = ..., rails: _Optional[_Iterable[_Union[Rail, _Mapping]]] = ..., reports_connections: _Optional[bool] = ..., parallelizations: _Optional[_Iterable[_Union[Parallelization, _Mapping]]] = ..., provisional: _Optional[bool] = ..., compute: _Optional[_Iterable[_Union[Compute, _Mapping]]] = ..., gpus: _Optional[int] = ..., work_per_iteration: _Optional[float] = ..., weight: _Optional[float] = ..., keeps_slots: _Optional[bool] = ...) -> None: ...

class Parallelization(_message.Message):
    __slots__ = ("name", "groups", "collectives", "transfers", "compute")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVES_FIELD_NUMBER: _ClassVar[int]
    TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_FIELD_NUMBER: _ClassVar[int]
    name: str
    groups: _containers.RepeatedCompositeFieldContainer[ParallelGroup]
    collectives: _containers.RepeatedCompositeFieldContainer[Collective]
    transfers: _containers.RepeatedCompositeFieldContainer[Transfer]
    compute: _containers.RepeatedCompositeFieldContainer[Compute]
    def __init__(self, name: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[ParallelGroup, _Mapping]]] = ..., collectives: _Optional[_Iterable[_Union[Collective, _Mapping]]] = ..., transfers: _Optional[_Iterable[_Union[Transfer, _Mapping]]] = ..., compute: _Optional[_Iterable[_Union[Compute, _Mapping]]] = ...) -> None: ...

class Compute(_message.Message):
    __slots__ = ("seconds", "phase", "before")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    phase: int
    before: int
    def __init__(self, seconds: _Optional[float] = ..., phase: _Optional[int] = ..., before: _Optional[int] = ...) -> None: ...

class Rail(_message.Message):
    __slots__ = ("endpoints",)
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    endpoints: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, endpoints: _Optional[_Iterable[str]] = ...) -> None: ...

class Transfer(_message.Message):
    __slots__ = ("src", "dst", "bytes_per_iteration", "phase", "step")
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_ITERATION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    src: int
    dst: int
    bytes_per_iteration: int
    phase: int
    step: int
    def __init__(self, src: _Optional[int] = ..., dst: _Optional[int] = ..., bytes_per_iteration: _Optional[int] = ..., phase: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class ParallelGroup(_message.Message):
    __slots__ = ("name", "ranks")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class Collective(_message.Message):
    __slots__ = ("algorithm", "groups", "bytes_per_iteration", "phase")
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_ITERATION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    algorithm: Algorithm
    groups: _containers.RepeatedScalarFieldContainer[str]
    bytes_per_iteration: int
    phase: int
    def __init__(self, algorithm: _Optional[_Union[Algorithm, str]] = ..., groups: _Optional[_Iterable[str]] = ..., bytes_per_iteration: _Optional[int] = ..., phase: _Optional[int] = ...) -> None: ...

class Demand(_message.Message):
    __slots__ = ("source", "learning", "difference", "measured_bps", "window", "undeclared_fraction", "pairs", "findings", "factor", "backwards", "patterns", "pattern")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LEARNING_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    MEASURED_BPS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    UNDECLARED_FRACTION_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    BACKWARDS_FIELD_NUMBER: _ClassVar[int]
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    source: DemandSource
    learning: bool
    difference: str
    measured_bps: float
    window: _duration_pb2.Duration
    undeclared_fraction: float
    pairs: _containers.RepeatedCompositeFieldContainer[PairDemand]
    findings: _containers.RepeatedScalarFieldContainer[DemandFinding]
    factor: float
    backwards: bool
    patterns: int
    pattern: int
    def __init__(self, source: _Optional[_Union[DemandSource, str]] = ..., learning: _Optional[bool] = ..., difference: _Optional[str] = ..., measured_bps: _Optional[float] = ..., window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., undeclared_fraction: _Optional[float] = ..., pairs: _Optional[_Iterable[_Union[PairDemand, _Mapping]]] = ..., findings: _Optional[_Iterable[_Union[DemandFinding, str]]] = ..., factor: _Optional[float] = ..., backwards: _Optional[bool] = ..., patterns: _Optional[int] = ..., pattern: _Optional[int] = ...) -> None: ...

class PairDemand(_message.Message):
    __slots__ = ("src", "dst", "declared_bytes", "measured_bps", "measured_bytes")
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    DECLARED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEASURED_BPS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_BYTES_FIELD_NUMBER: _ClassVar[int]
    src: str
    dst: str
    declared_bytes: int
    measured_bps: float
    measured_bytes: float
    def __init__(self, src: _Optional[str] = ..., dst: _Optional[str] = ..., declared_bytes: _Optional[int] = ..., measured_bps: _Optional[float] = ..., measured_bytes: _Optional[float] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("spec", "uid", "tenant", "register_time", "lease_left", "state", "missing_hosts", "virtual_links", "pinned", "subflows", "slowdown", "efficiency_predicted", "prediction_withheld", "efficiency_measured", "ideal_communication", "iterations", "last_iteration_index", "last_communication", "demand", "flows_without_path", "wiring", "revision", "timing")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    REGISTER_TIME_FIELD_NUMBER: _ClassVar[int]
    LEASE_LEFT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MISSING_HOSTS_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_LINKS_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    SUBFLOWS_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    EFFICIENCY_PREDICTED_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_WITHHELD_FIELD_NUMBER: _ClassVar[int]
    EFFICIENCY_MEASURED_FIELD_NUMBER: _ClassVar[int]
    IDEAL_COMMUNICATION_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    LAST_ITERATION_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMUNICATION_FIELD_NUMBER: _ClassVar[int]
    DEMAND_FIELD_NUMBER: _ClassVar[int]
    FLOWS_WITHOUT_PATH_FIELD_NUMBER: _ClassVar[int]
    WIRING_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    spec: JobSpec
    uid: str
    tenant: str
    register_time: _timestamp_pb2.Timestamp
    lease_left: _duration_pb2.Duration
    state: JobState
    missing_hosts: _containers.RepeatedScalarFieldContainer[str]
    virtual_links: int
    pinned: int
    subflows: int
    slowdown: float
    efficiency_predicted: float
    prediction_withheld: str
    efficiency_measured: float
    ideal_communication: _duration_pb2.Duration
    iterations: int
    last_iteration_index: int
    last_communication: _duration_pb2.Duration
    demand: Demand
    flows_without_path: int
    wiring: Wiring
    revision: int
    timing: Timing
    def __init__(self, spec: _Optional[_Union[JobSpec, _Mapping]] = ..., uid: _Optional[str] = ..., tenant: _Optional[str] = ..., register_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lease_left: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., state: _Optional[_Union[JobState, str]] = ..., missing_hosts: _Optional[_Iterable[str]] = ..., virtual_links: _Optional[int] = ..., pinned: _Optional[int] = ..., subflows: _Optional[int] = ..., slowdown: _Optional[float] = ..., efficiency_predicted: _Optional[float] = ..., prediction_withheld: _Optional[str] = ..., efficiency_measured: _Optional[float] = ..., ideal_communication: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., iterations: _Optional[int] = ..., last_iteration_index: _Optional[int] = ..., last_communication: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., demand: _Optional[_Union[Demand, _Mapping]] = ..., flows_without_path: _Optional[int] = ..., wiring: _Optional[_Union[Wiring, _Mapping]] = ..., revision: _Optional[int] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ("state", "reason", "traffic_class", "period", "until_communication", "jitter", "drift", "waited", "guaranteed", "promised", "slots", "ideal")
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    UNTIL_COMMUNICATION_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    DRIFT_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    GUARANTEED_FIELD_NUMBER: _ClassVar[int]
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    IDEAL_FIELD_NUMBER: _ClassVar[int]
    state: TimingState
    reason: str
    traffic_class: int
    period: _duration_pb2.Duration
    until_communication: _duration_pb2.Duration
    jitter: float
    drift: _duration_pb2.Duration
    waited: _duration_pb2.Duration
    guaranteed: _duration_pb2.Duration
    promised: _duration_pb2.Duration
    slots: _containers.RepeatedCompositeFieldContainer[CirclePart]
    ideal: _duration_pb2.Duration
    def __init__(self, state: _Optional[_Union[TimingState, str]] = ..., reason: _Optional[str] = ..., traffic_class: _Optional[int] = ..., period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., until_communication: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., jitter: _Optional[float] = ..., drift: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., waited: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., guaranteed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., promised: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., slots: _Optional[_Iterable[_Union[CirclePart, _Mapping]]] = ..., ideal: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CirclePart(_message.Message):
    __slots__ = ("start", "length")
    START_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    start: float
    length: float
    def __init__(self, start: _Optional[float] = ..., length: _Optional[float] = ...) -> None: ...

class Wiring(_message.Message):
    __slots__ = ("unwired", "parallelization", "runs", "circuits", "iteration", "iteration_bound", "iteration_alternative")
    UNWIRED_FIELD_NUMBER: _ClassVar[int]
    PARALLELIZATION_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    CIRCUITS_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    ITERATION_BOUND_FIELD_NUMBER: _ClassVar[int]
    ITERATION_ALTERNATIVE_FIELD_NUMBER: _ClassVar[int]
    unwired: str
    parallelization: str
    runs: JobSpec
    circuits: _containers.RepeatedCompositeFieldContainer[Circuit]
    iteration: _duration_pb2.Duration
    iteration_bound: _duration_pb2.Duration
    iteration_alternative: _duration_pb2.Duration
    def __init__(self, unwired: _Optional[str] = ..., parallelization: _Optional[str] = ..., runs: _Optional[_Union[JobSpec, _Mapping]] = ..., circuits: _Optional[_Iterable[_Union[Circuit, _Mapping]]] = ..., iteration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., iteration_bound: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., iteration_alternative: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Circuit(_message.Message):
    __slots__ = ("src", "dst")
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    src: PortRef
    dst: PortRef
    def __init__(self, src: _Optional[_Union[PortRef, _Mapping]] = ..., dst: _Optional[_Union[PortRef, _Mapping]] = ...) -> None: ...

class JobEnd(_message.Message):
    __slots__ = ("job_id", "uid", "tenant", "reason", "end_time")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    uid: str
    tenant: str
    reason: JobEndReason
    end_time: _timestamp_pb2.Timestamp
    def __init__(self, job_id: _Optional[str] = ..., uid: _Optional[str] = ..., tenant: _Optional[str] = ..., reason: _Optional[_Union[JobEndReason, str]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RegisterJobRequest(_message.Message):
    __slots__ = ("spec", "request_id", "lease_token", "take_over")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TAKE_OVER_FIELD_NUMBER: _ClassVar[int]
    spec: JobSpec
    request_id: str
    lease_token: str
    take_over: bool
    def __init__(self, spec: _Optional[_Union[JobSpec, _Mapping]] = ..., request_id: _Optional[str] = ..., lease_token: _Optional[str] = ..., take_over: _Optional[bool] = ...) -> None: ...

class RegisterJobResponse(_message.Message):
    __slots__ = ("job", "lease_token")
    JOB_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    job: Job
    lease_token: str
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., lease_token: _Optional[str] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    next_page_token: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateJobRequest(_message.Message):
    __slots__ = ("spec", "update_mask", "lease_token", "revision")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    spec: JobSpec
    update_mask: _field_mask_pb2.FieldMask
    lease_token: str
    revision: int
    def __init__(self, spec: _Optional[_Union[JobSpec, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., lease_token: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class UpdateJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class UpdateJobsRequest(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[UpdateJobRequest]
    def __init__(self, jobs: _Optional[_Iterable[_Union[UpdateJobRequest, _Mapping]]] = ...) -> None: ...

class UpdateJobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...

class DeregisterJobRequest(_message.Message):
    __slots__ = ("job_id", "lease_token", "force", "uid")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    lease_token: str
    force: bool
    uid: str
    def __init__(self, job_id: _Optional[str] = ..., lease_token: _Optional[str] = ..., force: _Optional[bool] = ..., uid: _Optional[str] = ...) -> None: ...

class DeregisterJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RenewLeaseRequest(_message.Message):
    __slots__ = ("job_id", "lease_token")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    lease_token: str
    def __init__(self, job_id: _Optional[str] = ..., lease_token: _Optional[str] = ...) -> None: ...

class RenewLeaseResponse(_message.Message):
    __slots__ = ("lease_left",)
    LEASE_LEFT_FIELD_NUMBER: _ClassVar[int]
    lease_left: _duration_pb2.Duration
    def __init__(self, lease_left: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Iteration(_message.Message):
    __slots__ = ("index", "duration", "communication", "age", "until_communication", "waited")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    COMMUNICATION_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_COMMUNICATION_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    index: int
    duration: _duration_pb2.Duration
    communication: _duration_pb2.Duration
    age: _duration_pb2.Duration
    until_communication: _duration_pb2.Duration
    waited: _duration_pb2.Duration
    def __init__(self, index: _Optional[int] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., communication: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., until_communication: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., waited: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReportIterationsRequest(_message.Message):
    __slots__ = ("job_id", "iterations", "lease_token")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    iterations: _containers.RepeatedCompositeFieldContainer[Iteration]
    lease_token: str
    def __init__(self, job_id: _Optional[str] = ..., iterations: _Optional[_Iterable[_Union[Iteration, _Mapping]]] = ..., lease_token: _Optional[str] = ...) -> None: ...

class ReportIterationsResponse(_message.Message):
    __slots__ = ("accepted", "wait")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    accepted: int
    wait: _duration_pb2.Duration
    def __init__(self, accepted: _Optional[int] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Connection(_message.Message):
    __slots__ = ("src", "src_port", "dst", "dst_port")
    SRC_FIELD_NUMBER: _ClassVar[int]
    SRC_PORT_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    DST_PORT_FIELD_NUMBER: _ClassVar[int]
    src: str
    src_port: int
    dst: str
    dst_port: int
    def __init__(self, src: _Optional[str] = ..., src_port: _Optional[int] = ..., dst: _Optional[str] = ..., dst_port: _Optional[int] = ...) -> None: ...

class ReportConnectionsRequest(_message.Message):
    __slots__ = ("job_id", "address", "connections", "lease_token")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    address: str
    connections: _containers.RepeatedCompositeFieldContainer[Connection]
    lease_token: str
    def __init__(self, job_id: _Optional[str] = ..., address: _Optional[str] = ..., connections: _Optional[_Iterable[_Union[Connection, _Mapping]]] = ..., lease_token: _Optional[str] = ...) -> None: ...

class ReportConnectionsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRoutesRequest(_message.Message):
    __slots__ = ("job_id", "resume_token", "uid")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    resume_token: str
    uid: str
    def __init__(self, job_id: _Optional[str] = ..., resume_token: _Optional[str] = ..., uid: _Optional[str] = ...) -> None: ...

class WatchRoutesResponse(_message.Message):
    __slots__ = ("generation", "routes", "resume_token", "uid", "slot", "dscp")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    DSCP_FIELD_NUMBER: _ClassVar[int]
    generation: int
    routes: _containers.RepeatedCompositeFieldContainer[Route]
    resume_token: str
    uid: str
    slot: Slot
    dscp: int
    def __init__(self, generation: _Optional[int] = ..., routes: _Optional[_Iterable[_Union[Route, _Mapping]]] = ..., resume_token: _Optional[str] = ..., uid: _Optional[str] = ..., slot: _Optional[_Union[Slot, _Mapping]] = ..., dscp: _Optional[int] = ...) -> None: ...

class Slot(_message.Message):
    __slots__ = ("period", "until", "max_wait", "number")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    period: _duration_pb2.Duration
    until: _duration_pb2.Duration
    max_wait: _duration_pb2.Duration
    number: int
    def __init__(self, period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., until: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., number: _Optional[int] = ...) -> None: ...

class Route(_message.Message):
    __slots__ = ("src", "dst", "pinned", "switches", "subflows")
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    SUBFLOWS_FIELD_NUMBER: _ClassVar[int]
    src: str
    dst: str
    pinned: bool
    switches: _containers.RepeatedScalarFieldContainer[str]
    subflows: _containers.RepeatedCompositeFieldContainer[Subflow]
    def __init__(self, src: _Optional[str] = ..., dst: _Optional[str] = ..., pinned: _Optional[bool] = ..., switches: _Optional[_Iterable[str]] = ..., subflows: _Optional[_Iterable[_Union[Subflow, _Mapping]]] = ...) -> None: ...

class Subflow(_message.Message):
    __slots__ = ("share", "switches", "port_value", "port_mask", "connections")
    SHARE_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    PORT_VALUE_FIELD_NUMBER: _ClassVar[int]
    PORT_MASK_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    share: float
    switches: _containers.RepeatedScalarFieldContainer[str]
    port_value: int
    port_mask: int
    connections: _containers.RepeatedCompositeFieldContainer[Connection]
    def __init__(self, share: _Optional[float] = ..., switches: _Optional[_Iterable[str]] = ..., port_value: _Optional[int] = ..., port_mask: _Optional[int] = ..., connections: _Optional[_Iterable[_Union[Connection, _Mapping]]] = ...) -> None: ...

class WatchJobsRequest(_message.Message):
    __slots__ = ("resume_token",)
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    resume_token: str
    def __init__(self, resume_token: _Optional[str] = ...) -> None: ...

class WatchJobsResponse(_message.Message):
    __slots__ = ("snapshot", "jobs", "ended", "resume_token")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    snapshot: bool
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    ended: _containers.RepeatedCompositeFieldContainer[JobEnd]
    resume_token: str
    def __init__(self, snapshot: _Optional[bool] = ..., jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[JobEnd, _Mapping]]] = ..., resume_token: _Optional[str] = ...) -> None: ...

class Port(_message.Message):
    __slots__ = ("number", "name", "up")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    up: bool
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., up: _Optional[bool] = ...) -> None: ...

class PortRef(_message.Message):
    __slots__ = ("dpid", "port")
    DPID_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    dpid: int
    port: int
    def __init__(self, dpid: _Optional[int] = ..., port: _Optional[int] = ...) -> None: ...

class Switch(_message.Message):
    __slots__ = ("dpid", "name", "ports", "in_sync", "rules", "foreign_rules", "tables", "other_tables", "holder")
    DPID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_RULES_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    OTHER_TABLES_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    dpid: int
    name: str
    ports: _containers.RepeatedCompositeFieldContainer[Port]
    in_sync: bool
    rules: int
    foreign_rules: int
    tables: _containers.RepeatedCompositeFieldContainer[FlowTable]
    other_tables: _containers.RepeatedCompositeFieldContainer[OtherTable]
    holder: str
    def __init__(self, dpid: _Optional[int] = ..., name: _Optional[str] = ..., ports: _Optional[_Iterable[_Union[Port, _Mapping]]] = ..., in_sync: _Optional[bool] = ..., rules: _Optional[int] = ..., foreign_rules: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[FlowTable, _Mapping]]] = ..., other_tables: _Optional[_Iterable[_Union[OtherTable, _Mapping]]] = ..., holder: _Optional[str] = ...) -> None: ...

class FlowTable(_message.Message):
    __slots__ = ("table", "entries", "max_entries")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    table: int
    entries: int
    max_entries: int
    def __init__(self, table: _Optional[int] = ..., entries: _Optional[int] = ..., max_entries: _Optional[int] = ...) -> None: ...

class OtherTable(_message.Message):
    __slots__ = ("table", "entries", "max_entries")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    table: OtherTableKind
    entries: int
    max_entries: int
    def __init__(self, table: _Optional[_Union[OtherTableKind, str]] = ..., entries: _Optional[int] = ..., max_entries: _Optional[int] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("src", "dst", "name", "capacity_bps", "rate_bps", "background_bps", "one_way")
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BPS_FIELD_NUMBER: _ClassVar[int]
    RATE_BPS_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_BPS_FIELD_NUMBER: _ClassVar[int]
    ONE_WAY_FIELD_NUMBER: _ClassVar[int]
    src: PortRef
    dst: PortRef
    name: str
    capacity_bps: float
    rate_bps: float
    background_bps: float
    one_way: bool
    def __init__(self, src: _Optional[_Union[PortRef, _Mapping]] = ..., dst: _Optional[_Union[PortRef, _Mapping]] = ..., name: _Optional[str] = ..., capacity_bps: _Optional[float] = ..., rate_bps: _Optional[float] = ..., background_bps: _Optional[float] = ..., one_way: _Optional[bool] = ...) -> None: ...

class Host(_message.Message):
    __slots__ = ("ip", "mac", "at", "switch_name")
    IP_FIELD_NUMBER: _ClassVar[int]
    MAC_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    SWITCH_NAME_FIELD_NUMBER: _ClassVar[int]
    ip: str
    mac: str
    at: PortRef
    switch_name: str
    def __init__(self, ip: _Optional[str] = ..., mac: _Optional[str] = ..., at: _Optional[_Union[PortRef, _Mapping]] = ..., switch_name: _Optional[str] = ...) -> None: ...

class DownPart(_message.Message):
    __slots__ = ("kind", "name", "down_time", "id")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DOWN_TIME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    kind: PartKind
    name: str
    down_time: _timestamp_pb2.Timestamp
    id: str
    def __init__(self, kind: _Optional[_Union[PartKind, str]] = ..., name: _Optional[str] = ..., down_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., id: _Optional[str] = ...) -> None: ...

class GetFabricRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetFabricResponse(_message.Message):
    __slots__ = ("generation", "switches", "links", "hosts", "drains", "parts_down", "dropped", "optical_switches")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    DRAINS_FIELD_NUMBER: _ClassVar[int]
    PARTS_DOWN_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    OPTICAL_SWITCHES_FIELD_NUMBER: _ClassVar[int]
    generation: int
    switches: _containers.RepeatedCompositeFieldContainer[Switch]
    links: _containers.RepeatedCompositeFieldContainer[Link]
    hosts: _containers.RepeatedCompositeFieldContainer[Host]
    drains: _containers.RepeatedCompositeFieldContainer[DrainedPart]
    parts_down: _containers.RepeatedCompositeFieldContainer[DownPart]
    dropped: _containers.RepeatedCompositeFieldContainer[DroppedPackets]
    optical_switches: _containers.RepeatedCompositeFieldContainer[OpticalSwitch]
    def __init__(self, generation: _Optional[int] = ..., switches: _Optional[_Iterable[_Union[Switch, _Mapping]]] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ..., hosts: _Optional[_Iterable[_Union[Host, _Mapping]]] = ..., drains: _Optional[_Iterable[_Union[DrainedPart, _Mapping]]] = ..., parts_down: _Optional[_Iterable[_Union[DownPart, _Mapping]]] = ..., dropped: _Optional[_Iterable[_Union[DroppedPackets, _Mapping]]] = ..., optical_switches: _Optional[_Iterable[_Union[OpticalSwitch, _Mapping]]] = ...) -> None: ...

class OpticalSwitch(_message.Message):
    __slots__ = ("dpid", "name", "connected", "fibres")
    DPID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    FIBRES_FIELD_NUMBER: _ClassVar[int]
    dpid: int
    name: str
    connected: bool
    fibres: _containers.RepeatedCompositeFieldContainer[Fibre]
    def __init__(self, dpid: _Optional[int] = ..., name: _Optional[str] = ..., connected: _Optional[bool] = ..., fibres: _Optional[_Iterable[_Union[Fibre, _Mapping]]] = ...) -> None: ...

class Fibre(_message.Message):
    __slots__ = ("port", "interface", "up", "out_port")
    PORT_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    OUT_PORT_FIELD_NUMBER: _ClassVar[int]
    port: int
    interface: PortRef
    up: bool
    out_port: int
    def __init__(self, port: _Optional[int] = ..., interface: _Optional[_Union[PortRef, _Mapping]] = ..., up: _Optional[bool] = ..., out_port: _Optional[int] = ...) -> None: ...

class DroppedPackets(_message.Message):
    __slots__ = ("dpid", "switch_name", "kind", "packets")
    DPID_FIELD_NUMBER: _ClassVar[int]
    SWITCH_NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    dpid: int
    switch_name: str
    kind: DroppedKind
    packets: int
    def __init__(self, dpid: _Optional[int] = ..., switch_name: _Optional[str] = ..., kind: _Optional[_Union[DroppedKind, str]] = ..., packets: _Optional[int] = ...) -> None: ...

class WatchFabricRequest(_message.Message):
    __slots__ = ("resume_token",)
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    resume_token: str
    def __init__(self, resume_token: _Optional[str] = ...) -> None: ...

class WatchFabricResponse(_message.Message):
    __slots__ = ("snapshot", "switches", "links", "hosts", "switches_gone", "links_gone", "hosts_gone", "drains", "drains_gone", "resume_token", "parts_down", "parts_back")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_GONE_FIELD_NUMBER: _ClassVar[int]
    LINKS_GONE_FIELD_NUMBER: _ClassVar[int]
    HOSTS_GONE_FIELD_NUMBER: _ClassVar[int]
    DRAINS_FIELD_NUMBER: _ClassVar[int]
    DRAINS_GONE_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PARTS_DOWN_FIELD_NUMBER: _ClassVar[int]
    PARTS_BACK_FIELD_NUMBER: _ClassVar[int]
    snapshot: bool
    switches: _containers.RepeatedCompositeFieldContainer[Switch]
    links: _containers.RepeatedCompositeFieldContainer[Link]
    hosts: _containers.RepeatedCompositeFieldContainer[Host]
    switches_gone: _containers.RepeatedScalarFieldContainer[int]
    links_gone: _containers.RepeatedCompositeFieldContainer[PortRef]
    hosts_gone: _containers.RepeatedScalarFieldContainer[str]
    drains: _containers.RepeatedCompositeFieldContainer[DrainedPart]
    drains_gone: _containers.RepeatedScalarFieldContainer[str]
    resume_token: str
    parts_down: _containers.RepeatedCompositeFieldContainer[DownPart]
    parts_back: _containers.RepeatedCompositeFieldContainer[DownPart]
    def __init__(self, snapshot: _Optional[bool] = ..., switches: _Optional[_Iterable[_Union[Switch, _Mapping]]] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ..., hosts: _Optional[_Iterable[_Union[Host, _Mapping]]] = ..., switches_gone: _Optional[_Iterable[int]] = ..., links_gone: _Optional[_Iterable[_Union[PortRef, _Mapping]]] = ..., hosts_gone: _Optional[_Iterable[str]] = ..., drains: _Optional[_Iterable[_Union[DrainedPart, _Mapping]]] = ..., drains_gone: _Optional[_Iterable[str]] = ..., resume_token: _Optional[str] = ..., parts_down: _Optional[_Iterable[_Union[DownPart, _Mapping]]] = ..., parts_back: _Optional[_Iterable[_Union[DownPart, _Mapping]]] = ...) -> None: ...

class RoutingSchemeSlowdown(_message.Message):
    __slots__ = ("scheme", "slowdown")
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    scheme: RoutingScheme
    slowdown: float
    def __init__(self, scheme: _Optional[_Union[RoutingScheme, str]] = ..., slowdown: _Optional[float] = ...) -> None: ...

class Pair(_message.Message):
    __slots__ = ("src", "dst")
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    src: str
    dst: str
    def __init__(self, src: _Optional[str] = ..., dst: _Optional[str] = ...) -> None: ...

class PlannedJob(_message.Message):
    __slots__ = ("job_id", "slowdown", "demand_source", "own_slowdown")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    DEMAND_SOURCE_FIELD_NUMBER: _ClassVar[int]
    OWN_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    slowdown: float
    demand_source: DemandSource
    own_slowdown: float
    def __init__(self, job_id: _Optional[str] = ..., slowdown: _Optional[float] = ..., demand_source: _Optional[_Union[DemandSource, str]] = ..., own_slowdown: _Optional[float] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("generation", "max_slowdown", "bound", "gap", "certificate", "slowdowns_proven", "solver", "moves", "ecmp_slowdown", "plan_time", "jobs", "routes", "unrouted", "installed", "subflows", "schemes", "cut_short", "moves_left", "blocked_flows", "slowdowns_proven_listed", "candidates_listed", "goal", "sharing")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MAX_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWNS_PROVEN_FIELD_NUMBER: _ClassVar[int]
    SOLVER_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    ECMP_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    PLAN_TIME_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    UNROUTED_FIELD_NUMBER: _ClassVar[int]
    INSTALLED_FIELD_NUMBER: _ClassVar[int]
    SUBFLOWS_FIELD_NUMBER: _ClassVar[int]
    SCHEMES_FIELD_NUMBER: _ClassVar[int]
    CUT_SHORT_FIELD_NUMBER: _ClassVar[int]
    MOVES_LEFT_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FLOWS_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWNS_PROVEN_LISTED_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_LISTED_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    SHARING_FIELD_NUMBER: _ClassVar[int]
    generation: int
    max_slowdown: float
    bound: float
    gap: float
    certificate: PlanCertificate
    slowdowns_proven: int
    solver: str
    moves: int
    ecmp_slowdown: EcmpSlowdowns
    plan_time: _duration_pb2.Duration
    jobs: _containers.RepeatedCompositeFieldContainer[PlannedJob]
    routes: _containers.RepeatedCompositeFieldContainer[PlannedRoute]
    unrouted: _containers.RepeatedCompositeFieldContainer[Pair]
    installed: bool
    subflows: int
    schemes: _containers.RepeatedCompositeFieldContainer[RoutingSchemeSlowdown]
    cut_short: bool
    moves_left: int
    blocked_flows: int
    slowdowns_proven_listed: int
    candidates_listed: int
    goal: GoalPlan
    sharing: Sharing
    def __init__(self, generation: _Optional[int] = ..., max_slowdown: _Optional[float] = ..., bound: _Optional[float] = ..., gap: _Optional[float] = ..., certificate: _Optional[_Union[PlanCertificate, str]] = ..., slowdowns_proven: _Optional[int] = ..., solver: _Optional[str] = ..., moves: _Optional[int] = ..., ecmp_slowdown: _Optional[_Union[EcmpSlowdowns, _Mapping]] = ..., plan_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., jobs: _Optional[_Iterable[_Union[PlannedJob, _Mapping]]] = ..., routes: _Optional[_Iterable[_Union[PlannedRoute, _Mapping]]] = ..., unrouted: _Optional[_Iterable[_Union[Pair, _Mapping]]] = ..., installed: _Optional[bool] = ..., subflows: _Optional[int] = ..., schemes: _Optional[_Iterable[_Union[RoutingSchemeSlowdown, _Mapping]]] = ..., cut_short: _Optional[bool] = ..., moves_left: _Optional[int] = ..., blocked_flows: _Optional[int] = ..., slowdowns_proven_listed: _Optional[int] = ..., candidates_listed: _Optional[int] = ..., goal: _Optional[_Union[GoalPlan, _Mapping]] = ..., sharing: _Optional[_Union[Sharing, _Mapping]] = ...) -> None: ...

class Sharing(_message.Message):
    __slots__ = ("objective", "guaranteed", "bound", "searched", "circles", "jobs", "links")
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    GUARANTEED_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    SEARCHED_FIELD_NUMBER: _ClassVar[int]
    CIRCLES_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    objective: SharingObjective
    guaranteed: float
    bound: float
    searched: float
    circles: _containers.RepeatedCompositeFieldContainer[Circle]
    jobs: _containers.RepeatedCompositeFieldContainer[SharedJob]
    links: _containers.RepeatedCompositeFieldContainer[SharedLinks]
    def __init__(self, objective: _Optional[_Union[SharingObjective, str]] = ..., guaranteed: _Optional[float] = ..., bound: _Optional[float] = ..., searched: _Optional[float] = ..., circles: _Optional[_Iterable[_Union[Circle, _Mapping]]] = ..., jobs: _Optional[_Iterable[_Union[SharedJob, _Mapping]]] = ..., links: _Optional[_Iterable[_Union[SharedLinks, _Mapping]]] = ...) -> None: ...

class SharedLinks(_message.Message):
    __slots__ = ("links", "job_ids", "average_load")
    LINKS_FIELD_NUMBER: _ClassVar[int]
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_LOAD_FIELD_NUMBER: _ClassVar[int]
    links: _containers.RepeatedScalarFieldContainer[str]
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    average_load: float
    def __init__(self, links: _Optional[_Iterable[str]] = ..., job_ids: _Optional[_Iterable[str]] = ..., average_load: _Optional[float] = ...) -> None: ...

class Circle(_message.Message):
    __slots__ = ("period", "job_ids")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    period: _duration_pb2.Duration
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., job_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class SharedJob(_message.Message):
    __slots__ = ("job_id", "traffic_class", "start", "guaranteed", "promised", "slots", "turns", "without_slots", "without_classes", "alone")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    GUARANTEED_FIELD_NUMBER: _ClassVar[int]
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_CLASSES_FIELD_NUMBER: _ClassVar[int]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    traffic_class: int
    start: float
    guaranteed: _duration_pb2.Duration
    promised: _duration_pb2.Duration
    slots: _containers.RepeatedCompositeFieldContainer[CirclePart]
    turns: int
    without_slots: _duration_pb2.Duration
    without_classes: _duration_pb2.Duration
    alone: _duration_pb2.Duration
    def __init__(self, job_id: _Optional[str] = ..., traffic_class: _Optional[int] = ..., start: _Optional[float] = ..., guaranteed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., promised: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., slots: _Optional[_Iterable[_Union[CirclePart, _Mapping]]] = ..., turns: _Optional[int] = ..., without_slots: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., without_classes: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., alone: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GoalPlan(_message.Message):
    __slots__ = ("max_slowdown", "jobs")
    MAX_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    max_slowdown: float
    jobs: _containers.RepeatedCompositeFieldContainer[GoalPlanJob]
    def __init__(self, max_slowdown: _Optional[float] = ..., jobs: _Optional[_Iterable[_Union[GoalPlanJob, _Mapping]]] = ...) -> None: ...

class GoalPlanJob(_message.Message):
    __slots__ = ("job_id", "slowdown")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    slowdown: float
    def __init__(self, job_id: _Optional[str] = ..., slowdown: _Optional[float] = ...) -> None: ...

class PlannedRoute(_message.Message):
    __slots__ = ("job_id", "route")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    route: Route
    def __init__(self, job_id: _Optional[str] = ..., route: _Optional[_Union[Route, _Mapping]] = ...) -> None: ...

class GetPlanRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPlanResponse(_message.Message):
    __slots__ = ("plan",)
    PLAN_FIELD_NUMBER: _ClassVar[int]
    plan: Plan
    def __init__(self, plan: _Optional[_Union[Plan, _Mapping]] = ...) -> None: ...

class WatchPlanRequest(_message.Message):
    __slots__ = ("resume_token",)
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    resume_token: str
    def __init__(self, resume_token: _Optional[str] = ...) -> None: ...

class WatchPlanResponse(_message.Message):
    __slots__ = ("plan", "resume_token")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    plan: Plan
    resume_token: str
    def __init__(self, plan: _Optional[_Union[Plan, _Mapping]] = ..., resume_token: _Optional[str] = ...) -> None: ...

class Alarm(_message.Message):
    __slots__ = ("kind", "subject", "severity", "raise_time", "text", "silence")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    RAISE_TIME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SILENCE_FIELD_NUMBER: _ClassVar[int]
    kind: AlarmKind
    subject: str
    severity: Severity
    raise_time: _timestamp_pb2.Timestamp
    text: str
    silence: Silence
    def __init__(self, kind: _Optional[_Union[AlarmKind, str]] = ..., subject: _Optional[str] = ..., severity: _Optional[_Union[Severity, str]] = ..., raise_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., text: _Optional[str] = ..., silence: _Optional[_Union[Silence, _Mapping]] = ...) -> None: ...

class Silence(_message.Message):
    __slots__ = ("silence_time", "end_time", "by", "comment")
    SILENCE_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    silence_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    by: str
    comment: str
    def __init__(self, silence_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., by: _Optional[str] = ..., comment: _Optional[str] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("version", "mode", "switches", "switches_in_sync", "links", "hosts", "jobs", "jobs_pending", "jobs_differing", "jobs_learning", "pins", "rules", "moved_flows_total", "network_efficiency", "counters_age", "alarms", "adopting", "state_revision", "drains", "jobs_without_path", "jobs_unplanned", "known_switches", "known_links", "hosts_down", "optical_switches", "optical_switches_down", "jobs_unconfirmed", "leader")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    JOBS_PENDING_FIELD_NUMBER: _ClassVar[int]
    JOBS_DIFFERING_FIELD_NUMBER: _ClassVar[int]
    JOBS_LEARNING_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    MOVED_FLOWS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    NETWORK_EFFICIENCY_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_AGE_FIELD_NUMBER: _ClassVar[int]
    ALARMS_FIELD_NUMBER: _ClassVar[int]
    ADOPTING_FIELD_NUMBER: _ClassVar[int]
    STATE_REVISION_FIELD_NUMBER: _ClassVar[int]
    DRAINS_FIELD_NUMBER: _ClassVar[int]
    JOBS_WITHOUT_PATH_FIELD_NUMBER: _ClassVar[int]
    JOBS_UNPLANNED_FIELD_NUMBER: _ClassVar[int]
    KNOWN_SWITCHES_FIELD_NUMBER: _ClassVar[int]
    KNOWN_LINKS_FIELD_NUMBER: _ClassVar[int]
    HOSTS_DOWN_FIELD_NUMBER: _ClassVar[int]
    OPTICAL_SWITCHES_FIELD_NUMBER: _ClassVar[int]
    OPTICAL_SWITCHES_DOWN_FIELD_NUMBER: _ClassVar[int]
    JOBS_UNCONFIRMED_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    version: str
    mode: Mode
    switches: int
    switches_in_sync: int
    links: int
    hosts: int
    jobs: int
    jobs_pending: int
    jobs_differing: int
    jobs_learning: int
    pins: int
    rules: int
    moved_flows_total: int
    network_efficiency: float
    counters_age: _duration_pb2.Duration
    alarms: _containers.RepeatedCompositeFieldContainer[Alarm]
    adopting: bool
    state_revision: int
    drains: _containers.RepeatedCompositeFieldContainer[DrainedPart]
    jobs_without_path: int
    jobs_unplanned: int
    known_switches: int
    known_links: int
    hosts_down: int
    optical_switches: int
    optical_switches_down: int
    jobs_unconfirmed: int
    leader: str
    def __init__(self, version: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., switches: _Optional[int] = ..., switches_in_sync: _Optional[int] = ..., links: _Optional[int] = ..., hosts: _Optional[int] = ..., jobs: _Optional[int] = ..., jobs_pending: _Optional[int] = ..., jobs_differing: _Optional[int] = ..., jobs_learning: _Optional[int] = ..., pins: _Optional[int] = ..., rules: _Optional[int] = ..., moved_flows_total: _Optional[int] = ..., network_efficiency: _Optional[float] = ..., counters_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., alarms: _Optional[_Iterable[_Union[Alarm, _Mapping]]] = ..., adopting: _Optional[bool] = ..., state_revision: _Optional[int] = ..., drains: _Optional[_Iterable[_Union[DrainedPart, _Mapping]]] = ..., jobs_without_path: _Optional[int] = ..., jobs_unplanned: _Optional[int] = ..., known_switches: _Optional[int] = ..., known_links: _Optional[int] = ..., hosts_down: _Optional[int] = ..., optical_switches: _Optional[int] = ..., optical_switches_down: _Optional[int] = ..., jobs_unconfirmed: _Optional[int] = ..., leader: _Optional[str] = ...) -> None: ...

class ForgetPartsRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class ForgetPartsResponse(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[DownPart]
    def __init__(self, parts: _Optional[_Iterable[_Union[DownPart, _Mapping]]] = ...) -> None: ...

class WatchAlarmsRequest(_message.Message):
    __slots__ = ("resume_token",)
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    resume_token: str
    def __init__(self, resume_token: _Optional[str] = ...) -> None: ...

class WatchAlarmsResponse(_message.Message):
    __slots__ = ("snapshot", "raised", "ended", "resume_token")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    RAISED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    snapshot: bool
    raised: _containers.RepeatedCompositeFieldContainer[Alarm]
    ended: _containers.RepeatedCompositeFieldContainer[Alarm]
    resume_token: str
    def __init__(self, snapshot: _Optional[bool] = ..., raised: _Optional[_Iterable[_Union[Alarm, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[Alarm, _Mapping]]] = ..., resume_token: _Optional[str] = ...) -> None: ...

class ReplanRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReplanResponse(_message.Message):
    __slots__ = ("outcome", "reason", "plan")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    outcome: ReplanOutcome
    reason: str
    plan: Plan
    def __init__(self, outcome: _Optional[_Union[ReplanOutcome, str]] = ..., reason: _Optional[str] = ..., plan: _Optional[_Union[Plan, _Mapping]] = ...) -> None: ...

class SetModeRequest(_message.Message):
    __slots__ = ("mode",)
    MODE_FIELD_NUMBER: _ClassVar[int]
    mode: Mode
    def __init__(self, mode: _Optional[_Union[Mode, str]] = ...) -> None: ...

class SetModeResponse(_message.Message):
    __slots__ = ("mode", "install_time", "pins")
    MODE_FIELD_NUMBER: _ClassVar[int]
    INSTALL_TIME_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    mode: Mode
    install_time: _duration_pb2.Duration
    pins: int
    def __init__(self, mode: _Optional[_Union[Mode, str]] = ..., install_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., pins: _Optional[int] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("job_id", "verdict", "answer", "slowdown", "efficiency_predicted", "efficiency_measured", "least_slowdown", "nic_slowdown", "flows", "flows_inside_a_leaf", "flows_hashed", "flows_without_a_path", "equally_full_links", "fullest_links", "cut", "best", "split", "demand", "prediction_withheld", "awaits_iterations", "hashed_slowdown", "pinning_gains_nothing", "fullest_nic", "own_link")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    EFFICIENCY_PREDICTED_FIELD_NUMBER: _ClassVar[int]
    EFFICIENCY_MEASURED_FIELD_NUMBER: _ClassVar[int]
    LEAST_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    NIC_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    FLOWS_INSIDE_A_LEAF_FIELD_NUMBER: _ClassVar[int]
    FLOWS_HASHED_FIELD_NUMBER: _ClassVar[int]
    FLOWS_WITHOUT_A_PATH_FIELD_NUMBER: _ClassVar[int]
    EQUALLY_FULL_LINKS_FIELD_NUMBER: _ClassVar[int]
    FULLEST_LINKS_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    DEMAND_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_WITHHELD_FIELD_NUMBER: _ClassVar[int]
    AWAITS_ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    HASHED_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    PINNING_GAINS_NOTHING_FIELD_NUMBER: _ClassVar[int]
    FULLEST_NIC_FIELD_NUMBER: _ClassVar[int]
    OWN_LINK_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    verdict: Verdict
    answer: _containers.RepeatedScalarFieldContainer[str]
    slowdown: float
    efficiency_predicted: float
    efficiency_measured: float
    least_slowdown: float
    nic_slowdown: float
    flows: int
    flows_inside_a_leaf: int
    flows_hashed: int
    flows_without_a_path: int
    equally_full_links: int
    fullest_links: _containers.RepeatedCompositeFieldContainer[BusyLink]
    cut: LeafCut
    best: FoundRoutes
    split: FoundRoutes
    demand: Demand
    prediction_withheld: str
    awaits_iterations: bool
    hashed_slowdown: float
    pinning_gains_nothing: bool
    fullest_nic: BusyLink
    own_link: BusyLink
    def __init__(self, job_id: _Optional[str] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., answer: _Optional[_Iterable[str]] = ..., slowdown: _Optional[float] = ..., efficiency_predicted: _Optional[float] = ..., efficiency_measured: _Optional[float] = ..., least_slowdown: _Optional[float] = ..., nic_slowdown: _Optional[float] = ..., flows: _Optional[int] = ..., flows_inside_a_leaf: _Optional[int] = ..., flows_hashed: _Optional[int] = ..., flows_without_a_path: _Optional[int] = ..., equally_full_links: _Optional[int] = ..., fullest_links: _Optional[_Iterable[_Union[BusyLink, _Mapping]]] = ..., cut: _Optional[_Union[LeafCut, _Mapping]] = ..., best: _Optional[_Union[FoundRoutes, _Mapping]] = ..., split: _Optional[_Union[FoundRoutes, _Mapping]] = ..., demand: _Optional[_Union[Demand, _Mapping]] = ..., prediction_withheld: _Optional[str] = ..., awaits_iterations: _Optional[bool] = ..., hashed_slowdown: _Optional[float] = ..., pinning_gains_nothing: _Optional[bool] = ..., fullest_nic: _Optional[_Union[BusyLink, _Mapping]] = ..., own_link: _Optional[_Union[BusyLink, _Mapping]] = ...) -> None: ...

class BusyLink(_message.Message):
    __slots__ = ("link", "nic", "load", "background", "jobs")
    LINK_FIELD_NUMBER: _ClassVar[int]
    NIC_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    link: str
    nic: bool
    load: float
    background: float
    jobs: _containers.RepeatedCompositeFieldContainer[JobShare]
    def __init__(self, link: _Optional[str] = ..., nic: _Optional[bool] = ..., load: _Optional[float] = ..., background: _Optional[float] = ..., jobs: _Optional[_Iterable[_Union[JobShare, _Mapping]]] = ...) -> None: ...

class JobShare(_message.Message):
    __slots__ = ("job_id", "flows", "load")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    flows: int
    load: float
    def __init__(self, job_id: _Optional[str] = ..., flows: _Optional[int] = ..., load: _Optional[float] = ...) -> None: ...

class LeafCut(_message.Message):
    __slots__ = ("leaf", "direction", "links", "failed", "fluid_slowdown", "whole_slowdown", "jobs", "other_leaf", "drained")
    LEAF_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FLUID_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    WHOLE_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    OTHER_LEAF_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    leaf: str
    direction: Direction
    links: int
    failed: int
    fluid_slowdown: float
    whole_slowdown: float
    jobs: _containers.RepeatedCompositeFieldContainer[JobFlows]
    other_leaf: str
    drained: int
    def __init__(self, leaf: _Optional[str] = ..., direction: _Optional[_Union[Direction, str]] = ..., links: _Optional[int] = ..., failed: _Optional[int] = ..., fluid_slowdown: _Optional[float] = ..., whole_slowdown: _Optional[float] = ..., jobs: _Optional[_Iterable[_Union[JobFlows, _Mapping]]] = ..., other_leaf: _Optional[str] = ..., drained: _Optional[int] = ...) -> None: ...

class JobFlows(_message.Message):
    __slots__ = ("job_id", "flows")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    flows: int
    def __init__(self, job_id: _Optional[str] = ..., flows: _Optional[int] = ...) -> None: ...

class FoundRoutes(_message.Message):
    __slots__ = ("slowdown", "worst_slowdown", "worst_bound", "certificate", "best_for_all", "moves", "most_subflows")
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    WORST_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    WORST_BOUND_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    BEST_FOR_ALL_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    MOST_SUBFLOWS_FIELD_NUMBER: _ClassVar[int]
    slowdown: float
    worst_slowdown: float
    worst_bound: float
    certificate: PlanCertificate
    best_for_all: bool
    moves: int
    most_subflows: int
    def __init__(self, slowdown: _Optional[float] = ..., worst_slowdown: _Optional[float] = ..., worst_bound: _Optional[float] = ..., certificate: _Optional[_Union[PlanCertificate, str]] = ..., best_for_all: _Optional[bool] = ..., moves: _Optional[int] = ..., most_subflows: _Optional[int] = ...) -> None: ...

class WhatIfRequest(_message.Message):
    __slots__ = ("kinds", "top", "within", "names")
    KINDS_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedScalarFieldContainer[FailureKind]
    top: int
    within: _duration_pb2.Duration
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kinds: _Optional[_Iterable[_Union[FailureKind, str]]] = ..., top: _Optional[int] = ..., within: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class WhatIfResponse(_message.Message):
    __slots__ = ("answer", "now", "outcomes", "failures", "cases", "unfelt")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    CASES_FIELD_NUMBER: _ClassVar[int]
    UNFELT_FIELD_NUMBER: _ClassVar[int]
    answer: _containers.RepeatedScalarFieldContainer[str]
    now: NetworkSlowdowns
    outcomes: _containers.RepeatedCompositeFieldContainer[FailureOutcome]
    failures: int
    cases: int
    unfelt: _containers.RepeatedCompositeFieldContainer[UnfeltFailures]
    def __init__(self, answer: _Optional[_Iterable[str]] = ..., now: _Optional[_Union[NetworkSlowdowns, _Mapping]] = ..., outcomes: _Optional[_Iterable[_Union[FailureOutcome, _Mapping]]] = ..., failures: _Optional[int] = ..., cases: _Optional[int] = ..., unfelt: _Optional[_Iterable[_Union[UnfeltFailures, _Mapping]]] = ...) -> None: ...

class GetPlanProofRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPlanProofResponse(_message.Message):
    __slots__ = ("document", "generation")
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    document: str
    generation: int
    def __init__(self, document: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class NetworkSlowdowns(_message.Message):
    __slots__ = ("slowdown", "bound", "integer_bound", "ecmp_slowdown", "unrouted")
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    INTEGER_BOUND_FIELD_NUMBER: _ClassVar[int]
    ECMP_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    UNROUTED_FIELD_NUMBER: _ClassVar[int]
    slowdown: float
    bound: float
    integer_bound: float
    ecmp_slowdown: EcmpSlowdowns
    unrouted: _containers.RepeatedCompositeFieldContainer[FlowEnds]
    def __init__(self, slowdown: _Optional[float] = ..., bound: _Optional[float] = ..., integer_bound: _Optional[float] = ..., ecmp_slowdown: _Optional[_Union[EcmpSlowdowns, _Mapping]] = ..., unrouted: _Optional[_Iterable[_Union[FlowEnds, _Mapping]]] = ...) -> None: ...

class FlowEnds(_message.Message):
    __slots__ = ("src", "dst", "src_leaf", "dst_leaf")
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    SRC_LEAF_FIELD_NUMBER: _ClassVar[int]
    DST_LEAF_FIELD_NUMBER: _ClassVar[int]
    src: str
    dst: str
    src_leaf: str
    dst_leaf: str
    def __init__(self, src: _Optional[str] = ..., dst: _Optional[str] = ..., src_leaf: _Optional[str] = ..., dst_leaf: _Optional[str] = ...) -> None: ...

class EcmpSlowdowns(_message.Message):
    __slots__ = ("mean", "p95")
    MEAN_FIELD_NUMBER: _ClassVar[int]
    P95_FIELD_NUMBER: _ClassVar[int]
    mean: float
    p95: float
    def __init__(self, mean: _Optional[float] = ..., p95: _Optional[float] = ...) -> None: ...

class FailureOutcome(_message.Message):
    __slots__ = ("kind", "example", "failures", "basis", "slowdown", "repaired_slowdown", "bound", "integer_bound", "proven", "ecmp_slowdown", "lost", "rerouted_fewest", "rerouted_most", "moved")
    KIND_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    BASIS_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    INTEGER_BOUND_FIELD_NUMBER: _ClassVar[int]
    PROVEN_FIELD_NUMBER: _ClassVar[int]
    ECMP_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    REROUTED_FEWEST_FIELD_NUMBER: _ClassVar[int]
    REROUTED_MOST_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    kind: FailureKind
    example: str
    failures: _containers.RepeatedScalarFieldContainer[str]
    basis: OutcomeBasis
    slowdown: float
    repaired_slowdown: float
    bound: float
    integer_bound: float
    proven: bool
    ecmp_slowdown: EcmpSlowdowns
    lost: _containers.RepeatedCompositeFieldContainer[FlowEnds]
    rerouted_fewest: int
    rerouted_most: int
    moved: int
    def __init__(self, kind: _Optional[_Union[FailureKind, str]] = ..., example: _Optional[str] = ..., failures: _Optional[_Iterable[str]] = ..., basis: _Optional[_Union[OutcomeBasis, str]] = ..., slowdown: _Optional[float] = ..., repaired_slowdown: _Optional[float] = ..., bound: _Optional[float] = ..., integer_bound: _Optional[float] = ..., proven: _Optional[bool] = ..., ecmp_slowdown: _Optional[_Union[EcmpSlowdowns, _Mapping]] = ..., lost: _Optional[_Iterable[_Union[FlowEnds, _Mapping]]] = ..., rerouted_fewest: _Optional[int] = ..., rerouted_most: _Optional[int] = ..., moved: _Optional[int] = ...) -> None: ...

class UnfeltFailures(_message.Message):
    __slots__ = ("kind", "failures")
    KIND_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    kind: FailureKind
    failures: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[_Union[FailureKind, str]] = ..., failures: _Optional[_Iterable[str]] = ...) -> None: ...

class DrainedPart(_message.Message):
    __slots__ = ("name", "drain_time", "state", "flows", "links", "rate_bps", "waits_for")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DRAIN_TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    RATE_BPS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    drain_time: _timestamp_pb2.Timestamp
    state: DrainState
    flows: int
    links: int
    rate_bps: float
    waits_for: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., drain_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., state: _Optional[_Union[DrainState, str]] = ..., flows: _Optional[int] = ..., links: _Optional[int] = ..., rate_bps: _Optional[float] = ..., waits_for: _Optional[_Iterable[str]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("drains",)
    DRAINS_FIELD_NUMBER: _ClassVar[int]
    drains: _containers.RepeatedCompositeFieldContainer[DrainedPart]
    def __init__(self, drains: _Optional[_Iterable[_Union[DrainedPart, _Mapping]]] = ...) -> None: ...

class UndrainRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class UndrainResponse(_message.Message):
    __slots__ = ("drains",)
    DRAINS_FIELD_NUMBER: _ClassVar[int]
    drains: _containers.RepeatedCompositeFieldContainer[DrainedPart]
    def __init__(self, drains: _Optional[_Iterable[_Union[DrainedPart, _Mapping]]] = ...) -> None: ...

class EventDetail(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("number", "event_time", "kind", "what", "details")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    number: int
    event_time: _timestamp_pb2.Timestamp
    kind: EventKind
    what: str
    details: _containers.RepeatedCompositeFieldContainer[EventDetail]
    def __init__(self, number: _Optional[int] = ..., event_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[_Union[EventKind, str]] = ..., what: _Optional[str] = ..., details: _Optional[_Iterable[_Union[EventDetail, _Mapping]]] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("after", "kinds", "page_size", "page_token")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    after: _timestamp_pb2.Timestamp
    kinds: _containers.RepeatedScalarFieldContainer[EventKind]
    page_size: int
    page_token: str
    def __init__(self, after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kinds: _Optional[_Iterable[_Union[EventKind, str]]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    next_page_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ("resume_token", "after", "kinds")
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    resume_token: str
    after: _timestamp_pb2.Timestamp
    kinds: _containers.RepeatedScalarFieldContainer[EventKind]
    def __init__(self, resume_token: _Optional[str] = ..., after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kinds: _Optional[_Iterable[_Union[EventKind, str]]] = ...) -> None: ...

class WatchEventsResponse(_message.Message):
    __slots__ = ("events", "resume_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    resume_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., resume_token: _Optional[str] = ...) -> None: ...

class RoutePath(_message.Message):
    __slots__ = ("share", "switches", "links")
    SHARE_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    share: float
    switches: _containers.RepeatedScalarFieldContainer[str]
    links: _containers.RepeatedCompositeFieldContainer[PortRef]
    def __init__(self, share: _Optional[float] = ..., switches: _Optional[_Iterable[str]] = ..., links: _Optional[_Iterable[_Union[PortRef, _Mapping]]] = ...) -> None: ...

class ListedRoute(_message.Message):
    __slots__ = ("job_id", "src", "dst", "held", "planned")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    src: str
    dst: str
    held: _containers.RepeatedCompositeFieldContainer[RoutePath]
    planned: _containers.RepeatedCompositeFieldContainer[RoutePath]
    def __init__(self, job_id: _Optional[str] = ..., src: _Optional[str] = ..., dst: _Optional[str] = ..., held: _Optional[_Iterable[_Union[RoutePath, _Mapping]]] = ..., planned: _Optional[_Iterable[_Union[RoutePath, _Mapping]]] = ...) -> None: ...

class ListRoutesRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "job_ids", "planned_otherwise")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    PLANNED_OTHERWISE_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    planned_otherwise: bool
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., job_ids: _Optional[_Iterable[str]] = ..., planned_otherwise: _Optional[bool] = ...) -> None: ...

class ListRoutesResponse(_message.Message):
    __slots__ = ("routes", "next_page_token", "plan_generation")
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PLAN_GENERATION_FIELD_NUMBER: _ClassVar[int]
    routes: _containers.RepeatedCompositeFieldContainer[ListedRoute]
    next_page_token: str
    plan_generation: int
    def __init__(self, routes: _Optional[_Iterable[_Union[ListedRoute, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., plan_generation: _Optional[int] = ...) -> None: ...

class SwitchRule(_message.Message):
    __slots__ = ("kind", "id", "table", "priority", "cookie", "match", "actions", "purpose", "job_ids", "src", "dst", "acknowledgements", "towards")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    COOKIE_FIELD_NUMBER: _ClassVar[int]
    MATCH_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGEMENTS_FIELD_NUMBER: _ClassVar[int]
    TOWARDS_FIELD_NUMBER: _ClassVar[int]
    kind: RuleKind
    id: int
    table: int
    priority: int
    cookie: int
    match: str
    actions: str
    purpose: RulePurpose
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    src: str
    dst: str
    acknowledgements: bool
    towards: str
    def __init__(self, kind: _Optional[_Union[RuleKind, str]] = ..., id: _Optional[int] = ..., table: _Optional[int] = ..., priority: _Optional[int] = ..., cookie: _Optional[int] = ..., match: _Optional[str] = ..., actions: _Optional[str] = ..., purpose: _Optional[_Union[RulePurpose, str]] = ..., job_ids: _Optional[_Iterable[str]] = ..., src: _Optional[str] = ..., dst: _Optional[str] = ..., acknowledgements: _Optional[bool] = ..., towards: _Optional[str] = ...) -> None: ...

class ListRulesRequest(_message.Message):
    __slots__ = ("dpid", "page_size", "page_token")
    DPID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    dpid: int
    page_size: int
    page_token: str
    def __init__(self, dpid: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRulesResponse(_message.Message):
    __slots__ = ("rules", "next_page_token")
    RULES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[SwitchRule]
    next_page_token: str
    def __init__(self, rules: _Optional[_Iterable[_Union[SwitchRule, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class SilenceAlarmsRequest(_message.Message):
    __slots__ = ("kind", "subject", "duration", "comment")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    kind: AlarmKind
    subject: str
    duration: _duration_pb2.Duration
    comment: str
    def __init__(self, kind: _Optional[_Union[AlarmKind, str]] = ..., subject: _Optional[str] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., comment: _Optional[str] = ...) -> None: ...

class SilenceAlarmsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EndSilenceRequest(_message.Message):
    __slots__ = ("kind", "subject")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    kind: AlarmKind
    subject: str
    def __init__(self, kind: _Optional[_Union[AlarmKind, str]] = ..., subject: _Optional[str] = ...) -> None: ...

class EndSilenceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Member(_message.Message):
    __slots__ = ("name", "role", "address", "version", "start_time", "switches", "draining", "state_format", "cannot_link", "last_seen_time", "assigned_switches", "last_seen_age")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    STATE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    CANNOT_LINK_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_TIME_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_SWITCHES_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_AGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: MemberRole
    address: str
    version: str
    start_time: _timestamp_pb2.Timestamp
    switches: int
    draining: bool
    state_format: int
    cannot_link: bool
    last_seen_time: _timestamp_pb2.Timestamp
    assigned_switches: int
    last_seen_age: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., role: _Optional[_Union[MemberRole, str]] = ..., address: _Optional[str] = ..., version: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., switches: _Optional[int] = ..., draining: _Optional[bool] = ..., state_format: _Optional[int] = ..., cannot_link: _Optional[bool] = ..., last_seen_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., assigned_switches: _Optional[int] = ..., last_seen_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ListMembersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListMembersResponse(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class DrainMemberRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DrainMemberResponse(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class UndrainMemberRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class UndrainMemberResponse(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class ForgetMemberRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ForgetMemberResponse(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...
