"""Words of the API's enums, as commands accept and show them, and a key of its metadata."""

from __future__ import annotations

from enum import StrEnum

MAY_BE_REPLACED = "signalbox-may-be-replaced"
"""Trailing metadata of an answer that may be out of date, because another controller may have become the active one."""


class Mode(StrEnum):
    """Mode of the controller. ``shadow`` plans and reports what a plan would gain, but installs nothing."""

    ECMP = "ecmp"
    PLANNED = "planned"
    SHADOW = "shadow"


class Objective(StrEnum):
    """Meaning of the slowdown of a job with several phases: that of the iteration, or that of the slowest phase."""

    ITERATION = "iteration"
    PHASE = "phase"


class SharingObjective(StrEnum):
    """Objective for jobs that share links: worst slowdown, GPU-seconds lost by sharing, or weighted mean slowdown."""

    WORST = "worst"
    GPU_SECONDS = "gpu-seconds"
    WEIGHTED = "weighted"


class AlarmKind(StrEnum):
    """Kind of an alarm, named after what is wrong."""

    PLAN_WORSE_THAN_ECMP = "plan_worse_than_ecmp"
    FLOWS_WITHOUT_PATH = "flows_without_path"
    RULES_REFUSED = "rules_refused"
    MASTERSHIP_LOST = "mastership_lost"
    GENERATION_AHEAD = "generation_ahead"
    DUPLICATE_DPID = "duplicate_dpid"
    FOREIGN_RULES = "foreign_rules"
    LLDP_MALFORMED = "lldp_malformed"
    LLDP_FORGED = "lldp_forged"
    LLDP_REPLAYED = "lldp_replayed"
    LLDP_REFLECTED = "lldp_reflected"
    PUNT_LIMIT_EXCEEDED = "punt_limit_exceeded"
    ADDRESSES_CLAIMED = "addresses_claimed"
    HOSTS_MISSING = "hosts_missing"
    DEMAND_DIFFERS = "demand_differs"
    STATE_NOT_SAVED = "state_not_saved"
    MEMBER_ABSENT = "member_absent"
    MEMBER_UNLINKED = "member_unlinked"
    SLOT_IGNORED = "slot_ignored"
    COUNTERS_STALE = "counters_stale"
    CONNECTIONS_REFUSED = "connections_refused"
    SWITCH_FLOODS = "switch_floods"
    SWITCH_DOWN = "switch_down"
    LINK_DOWN = "link_down"
    HOST_DOWN = "host_down"
    FABRIC_INCOMPLETE = "fabric_incomplete"
    INTERFACE_DARK = "interface_dark"
    TABLE_NEARLY_FULL = "table_nearly_full"


class EventKind(StrEnum):
    """Subject of an event.

    ``JOB_ALARM``: an alarm about a single job. Alarms about single jobs have a kind of their own, because their number
    grows with the jobs. ``ALARM``: any other alarm."""

    CONTROLLER = "controller"
    FABRIC = "fabric"
    DRAIN = "drain"
    RULES = "rules"
    PLAN = "plan"
    MODE = "mode"
    JOB = "job"
    ALARM = "alarm"
    JOB_ALARM = "job_alarm"


class FailureKind(StrEnum):
    """Kind of a failure.

    - ``spine``: a switch without hosts
    - ``cable``: one cable
    - ``bundle``: all cables between two switches that have several
    - ``parts``: all named parts at once"""

    SPINE = "spine"
    CABLE = "cable"
    BUNDLE = "bundle"
    PARTS = "parts"
