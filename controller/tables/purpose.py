"""What each rule on a switch is there for: which job and flow it serves, or what the controller itself needs.

In: the rules of one switch, which jobs there are, the fabric. Out: a purpose per rule. Pure. All of it follows from the
rule: its table and match, the owner in its cookie, or the id of a group, which is a hash of what the group is for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from controller.fabric.topology import Dpid, Fabric
from controller.planning.problem import FlowId
from controller.tables.pinned_table import LEARNING_PRIORITY, counted
from controller.tables.rule_text import match_text
from controller.tables.rules import (
    ETH_ARP,
    ETH_LLDP,
    FlowRule,
    GroupRule,
    MeterRule,
    Output,
    Rule,
    RuleSet,
    Table,
    ToGroup,
    cookie_owner,
    job_owner,
)
from controller.tables.switch_rules import possible_groups
from signalbox.jobs.spec import JobId


class Purpose(StrEnum):
    """``ARP``: ARP is seen by the controller, and passes where its sender is known. ``MISS``: what no other rule of the
    table is for goes on. ``PIN``: a flow on its planned path. ``COUNTING``: bytes of a flow that is hashed.
    ``LEARNING``: bytes of a pair that no job has announced. ``HOST``: to a host's port. ``ECMP``: to another switch,
    hashed. ``PUNT_LIMIT``: what a port may hand to the controller. ``ORPHAN``: of a job that this controller does not
    know. ``DROP``: what is not carried, counted by its kind. ``FOUND``: it was found on the switch, and follows from
    nothing that is known."""

    LLDP = "lldp"
    ARP = "arp"
    MISS = "miss"
    PIN = "pin"
    COUNTING = "counting"
    LEARNING = "learning"
    HOST = "host"
    ECMP = "ecmp"
    PUNT_LIMIT = "punt_limit"
    ORPHAN = "orphan"
    DROP = "drop"
    FOUND = "found"


class Use(NamedTuple):
    """``jobs``: whom the rule serves. ``flow``: whose packets it is for. ``answers``: these are the acknowledgements of
    the job's flow the other way. ``towards``: the switch that a group, or a rule that points to one, leads to."""

    purpose: Purpose
    jobs: tuple[JobId, ...] = ()
    flow: FlowId | None = None
    answers: bool = False
    towards: Dpid | None = None


class Announcing(Protocol):
    """A job. ``routes``: by the flows that it announced."""

    @property
    def routes(self) -> Mapping[FlowId, object]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Ordered:
    """The rules of a switch in the order of ``keys``, which are unique: flows by table, the most specific first, then
    groups, then meters. ``owners``: of the pins that point at each group."""

    keys: tuple[str, ...]
    rules: tuple[Rule, ...]
    owners: Mapping[int, frozenset[int]]


def ordered(rules: RuleSet) -> Ordered:
    found: list[tuple[str, Rule]] = []
    owners: defaultdict[int, set[int]] = defaultdict(set)
    for key, flow in rules.flows.items():
        found.append((f"0 {int(key.table)} {0xFFFF - key.priority:05d} {match_text(key.match)}", flow))
        for action in flow.actions if key.table == Table.PINNED else ():
            if isinstance(action, ToGroup):
                owners[action.group_id].add(cookie_owner(flow.cookie))
    found += [(f"1 {group_id:010d}", group) for group_id, group in rules.groups.items()]
    found += [(f"2 {meter_id:010d}", meter) for meter_id, meter in rules.meters.items()]
    found.sort(key=lambda item: item[0])
    names = tuple(key for key, _ in found)
    return Ordered(names, tuple(rule for _, rule in found), {group: frozenset(of) for group, of in owners.items()})


class Purposes:
    """Of the rules of one switch. ``jobs``: all that there are."""

    def __init__(self, dpid: Dpid, fabric: Fabric, jobs: Mapping[JobId, Announcing]) -> None:
        self._job_of = {job_owner(job_id): job_id for job_id in jobs}
        self._jobs = jobs
        self._pairs: dict[JobId, Set[tuple[str, str]]] = {}
        self._groups = possible_groups(dpid, fabric)

    def of(self, rule: Rule, owners: Mapping[int, frozenset[int]]) -> Use:
        """``owners``: see ``Ordered``."""
        match rule:
            case MeterRule():
                return Use(Purpose.PUNT_LIMIT)
            case GroupRule():
                return self._of_group(rule, owners.get(rule.group_id, frozenset()))
        match rule.key.table:
            case Table.CONTROL:
                kinds = {ETH_LLDP: Purpose.LLDP, ETH_ARP: Purpose.ARP}
                return Use(kinds.get(rule.key.match.eth_type or 0, Purpose.MISS))
            case Table.PINNED:
                return self._of_flow(rule)
            case Table.DEFAULT:
                return self._by_destination(rule)

    def _of_flow(self, rule: FlowRule) -> Use:
        if (what := counted(rule.key)) is None:
            return Use(Purpose.MISS)
        flow, job_id = FlowId(what.src_ip, what.dst_ip), self._job_of.get(cookie_owner(rule.cookie))
        if job_id is None:
            return Use(Purpose.ORPHAN, flow=flow)
        if rule.key.priority == LEARNING_PRIORITY:
            return Use(Purpose.LEARNING, (job_id,), flow)
        purpose = Purpose.COUNTING if rule.goto is not None else Purpose.PIN
        return Use(purpose, (job_id,), flow, flow.pair not in self._announced(job_id), self._towards(rule))

    def _announced(self, job_id: JobId) -> Set[tuple[str, str]]:
        if job_id not in self._pairs:
            self._pairs[job_id] = {flow.pair for flow in self._jobs[job_id].routes}
        return self._pairs[job_id]

    def _by_destination(self, rule: FlowRule) -> Use:
        if not rule.actions:
            return Use(Purpose.DROP)
        if any(isinstance(action, Output) for action in rule.actions):
            return Use(Purpose.HOST)
        return Use(Purpose.ECMP, towards=self._towards(rule))

    def _of_group(self, group: GroupRule, owners: frozenset[int]) -> Use:
        towards = self._groups.get(group.group_id)
        jobs = tuple(sorted(self._job_of[owner] for owner in owners if owner in self._job_of))
        if towards is None and not jobs:
            return Use(Purpose.FOUND)
        return Use(Purpose.ECMP if group.kind == "select" else Purpose.PIN, jobs, towards=towards)

    def _towards(self, rule: FlowRule) -> Dpid | None:
        groups = (self._groups.get(action.group_id) for action in rule.actions if isinstance(action, ToGroup))
        return next(groups, None)
