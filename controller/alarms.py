"""What an operator should look at, as typed values; put into words only where people read them.

The control loop raises them (``core/status_and_alarms.py``); the API and the log word them with ``text``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Severity = Literal["warning", "critical"]


class AlarmKind(StrEnum):
    """By what is wrong."""

    PLAN_WORSE_THAN_ECMP = "plan_worse_than_ecmp"
    FLOWS_WITHOUT_PATH = "flows_without_path"
    RULES_REFUSED = "rules_refused"
    MASTERSHIP_LOST = "mastership_lost"
    DUPLICATE_DPID = "duplicate_dpid"
    FOREIGN_RULES = "foreign_rules"
    LLDP_MALFORMED = "lldp_malformed"
    LLDP_FORGED = "lldp_forged"
    LLDP_REPLAYED = "lldp_replayed"
    LLDP_REFLECTED = "lldp_reflected"
    PUNT_LIMIT_EXCEEDED = "punt_limit_exceeded"
    ADDRESSES_CLAIMED = "addresses_claimed"
    HOSTS_MISSING = "hosts_missing"


CRITICAL = {AlarmKind.FLOWS_WITHOUT_PATH, AlarmKind.MASTERSHIP_LOST, AlarmKind.DUPLICATE_DPID, AlarmKind.LLDP_FORGED}


@dataclass(frozen=True, slots=True)
class Alarm:
    """``subject``: the name of the switch, port (``leaf1:3``) or job, or ``plan``. ``since``: monotonic seconds when an
    alarm of this kind and subject was raised. ``facts``: what else is known of it, which may change while it lasts."""

    kind: AlarmKind
    subject: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    since: float = 0.0

    @property
    def severity(self) -> Severity:
        """``critical`` where traffic is lost, or a switch or a link cannot be trusted."""
        return "critical" if self.kind in CRITICAL else "warning"

    @property
    def key(self) -> tuple[AlarmKind, str]:
        """What makes two alarms the same one."""
        return self.kind, self.subject


def text(alarm: Alarm) -> str:
    """The alarm in a sentence."""
    return _TEXTS[alarm.kind](alarm.subject, alarm.facts)


def _list(names: list[str]) -> str:
    """The first few."""
    return ", ".join(names[:4])


def _refused(subject: str, facts: Mapping[str, Any]) -> str:
    rules = [f"{'a rule' if count == 1 else f'{count} rules'} ({reason})" for reason, count in facts["reasons"].items()]
    return f"{subject} refused {' and '.join(rules)}; what was to be pinned stays on ECMP"


_TEXTS: Mapping[AlarmKind, Callable[[str, Mapping[str, Any]], str]] = {
    AlarmKind.PLAN_WORSE_THAN_ECMP: lambda _, facts: (
        f"the plan's worst level {facts['level']:.2f} is worse than ECMP's mean {facts['ecmp']:.2f}"
    ),
    AlarmKind.FLOWS_WITHOUT_PATH: lambda _, facts: (
        f"{len(facts['flows'])} flows have no path: {_list([f'{src} > {dst}' for src, dst in facts['flows']])}"
    ),
    AlarmKind.RULES_REFUSED: _refused,
    AlarmKind.MASTERSHIP_LOST: lambda switch, _: (
        f"another controller has become the master of {switch}; the switch is left alone until it connects again"
    ),
    AlarmKind.DUPLICATE_DPID: lambda switch, facts: (
        f"a second switch, at {facts['peer']}, has the dpid of {switch} ({facts['dpid']:#x}); it is refused"
    ),
    AlarmKind.FOREIGN_RULES: lambda switch, facts: f"{switch} holds {facts['rules']} foreign rules",
    AlarmKind.LLDP_MALFORMED: lambda port, _: f"{port} sends malformed LLDP with Signalbox's TLV; it is ignored",
    AlarmKind.LLDP_FORGED: lambda port, _: (
        f"{port} sends LLDP with Signalbox's TLV and a wrong signature: a host that invents links, or another "
        "controller's fabric; it is ignored"
    ),
    AlarmKind.LLDP_REPLAYED: lambda port, _: (
        f"{port} sends LLDP probes that were used before or are too old: a host that repeats what it received, or a "
        "switch with a long delay; they are ignored"
    ),
    AlarmKind.LLDP_REFLECTED: lambda port, _: (
        f"{port} sends LLDP back into the port that it left: a loop, or a host that repeats what it received; it is "
        "ignored"
    ),
    AlarmKind.PUNT_LIMIT_EXCEEDED: lambda port, facts: (
        f"{facts['port_kind']} {port} sends more to the controller than its limit: "
        f"{facts['packets']} packets dropped in the last {facts['seconds']:.0f} s"
    ),
    AlarmKind.ADDRESSES_CLAIMED: lambda port, _: (
        f"{port} claims addresses of hosts at other ports; the claims are refused"
    ),
    AlarmKind.HOSTS_MISSING: lambda job, facts: (
        f"job {job} waits for {len(facts['hosts'])} hosts: {_list(list(facts['hosts']))}"
    ),
}
