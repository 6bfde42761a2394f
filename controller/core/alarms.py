"""Raised alarms: about jobs, the plan, switches, and parts of the fabric that are down. Pure.

``AlarmTimes`` adds the start time of each alarm. One fault raises one alarm: a part that is down because of another
part raises none (``excepted``, ``core/derived.py``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, TypeVar

from controller.alarms import Alarm, AlarmKey, Missed
from controller.core.state import State
from controller.demand.job_demand import JobDemand
from controller.fabric.host_discovery import RECENT_S as CLAIMS_RECENT_S
from controller.fabric.messages import PacketRefusal
from controller.fabric.parts import Part, PartKey, PartKind, SwitchRole
from controller.fabric.refusals import (
    CONNECTIONS_RECENT_S,
    DUPLICATES_RECENT_S,
    FLOODS_RECENT_S,
    PACKETS_RECENT_S,
    PortCounts,
)
from controller.fabric.topology import Dpid, Fabric, LinkId, PortRef
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.shared_map import SharedMap, differing, updated
from controller.silence import Silence, SilenceKey
from controller.tables.rules import Table
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind

Key = TypeVar("Key")

MANY_AT_LEAST = 5
MANY_FRACTION = 0.25
"""Fraction of the switches above which missing switches raise one common alarm instead of an alarm per switch.

The fraction is that of all expected switches, or that of the expected switches with one role. At least
``MANY_AT_LEAST`` switches must be missing as well. So many switches are missing if the inventory describes another
fabric, or if the control network is cut."""

MOST_PORTS_OF_SWITCH, MOST_PORTS = 16, 256
"""Largest number of alarms of one kind about ports, for one switch and for all switches."""

_LLDP_KINDS: Mapping[PacketRefusal, AlarmKind] = {
    "malformed": AlarmKind.LLDP_MALFORMED,
    "forged": AlarmKind.LLDP_FORGED,
    "replayed": AlarmKind.LLDP_REPLAYED,
    "reflected": AlarmKind.LLDP_REFLECTED,
}
"""Kind of alarm for each reason why the controller refuses an LLDP packet.

LLDP of hosts, and of ports that go down, raises no alarm, because such LLDP is common."""


def demand_alarm(job_id: JobId, demand: JobDemand) -> Alarm | None:
    """Return the alarm of a job whose traffic contradicts its announcement, else None.

    A job that sends nothing, or slowly, raises no alarm: it may be writing a checkpoint. If the job was killed, the end
    of its lease removes it."""
    facts = {"difference": demand.difference}
    return Alarm(AlarmKind.DEMAND_DIFFERS, job_id, facts) if demand.contradicted else None


def host_alarm(job_id: JobId, missing: tuple[str, ...]) -> Alarm:
    return Alarm(AlarmKind.HOSTS_MISSING, job_id, {"hosts": missing})


def raised_alarms(s: State, fabric: Fabric, without_path: Mapping[JobId, int], now: float) -> Iterator[Alarm]:
    """Yield the alarms that concern neither a single job nor a single part; at most one per kind and subject.

    ``fabric``: the topology with a unique name for each switch. ``without_path``: number of flows, by job, whose hosts
    the fabric does not connect."""
    plan = s.cycle.plan
    if s.plan_installed and plan and plan.ecmp and plan.max_slowdown > plan.ecmp.mean * (1 + SLOWDOWN_TOLERANCE):
        yield Alarm(AlarmKind.PLAN_WORSE_THAN_ECMP, "plan", {"slowdown": plan.max_slowdown, "ecmp": plan.ecmp.mean})
    if without_path:
        yield Alarm(AlarmKind.FLOWS_WITHOUT_PATH, "plan", {"flows": (), "of_jobs": dict(without_path)})
    elif plan and plan.unrouted:
        yield Alarm(AlarmKind.FLOWS_WITHOUT_PATH, "plan", {"flows": plan.unrouted})
    if trouble := s.commits.trouble(now):
        yield Alarm(AlarmKind.STATE_NOT_SAVED, "state", {"why": trouble})
    for name, seen in s.missing_members.absent.items():
        yield Alarm(AlarmKind.MEMBER_ABSENT, name, {"seen": seen})
    for name in s.missing_members.unlinked:
        yield Alarm(AlarmKind.MEMBER_UNLINKED, name)
    yield from _switch_alarms(s, fabric, now)
    yield from _refused_connections(s, now)
    yield from _stale_counters(s, fabric, now)
    yield from _full_tables(s, fabric)
    yield from _port_alarms(s, fabric, now)


def _switch_alarms(s: State, fabric: Fabric, now: float) -> Iterator[Alarm]:
    reasons: defaultdict[Dpid, Counter[str]] = defaultdict(Counter)
    for (dpid, _), refusal in s.sync.refused.items():
        reasons[dpid][refusal.reason] += 1
    for dpid, of_switch in reasons.items():
        yield Alarm(AlarmKind.RULES_REFUSED, fabric.name(dpid), {"reasons": of_switch})
    for lost in s.refusals.other_masters.values():
        facts = {"generation": lost.ahead} if lost.ahead else {}
        yield Alarm(AlarmKind.GENERATION_AHEAD if lost.ahead else AlarmKind.MASTERSHIP_LOST, lost.name, facts)
    for raised in s.refusals.raised.values():
        yield Alarm(AlarmKind.GENERATION_AHEAD, raised.name, {"generation": raised.generation})
    for dpid, (peer, last_at) in s.refusals.duplicates.items():
        if now < last_at + DUPLICATES_RECENT_S:
            yield Alarm(AlarmKind.DUPLICATE_DPID, fabric.name(dpid), {"peer": peer, "dpid": dpid})
    for dpid, last_at in s.refusals.floods.items():
        if now < last_at + FLOODS_RECENT_S:
            yield Alarm(AlarmKind.SWITCH_FLOODS, fabric.name(dpid))
    partly_read = s.sync.partly_read
    for dpid, count in s.sync.foreign.items():
        if count:
            rules = f"at least {count}" if dpid in partly_read else count
            yield Alarm(AlarmKind.FOREIGN_RULES, fabric.name(dpid), {"rules": rules})


def _full_tables(s: State, fabric: Fabric) -> Iterator[Alarm]:
    for dpid, use, refused in s.tables.nearly_full((rule[0], why) for rule, why in s.sync.refused.items()):
        if dpid in fabric.switches:
            name = fabric.name(dpid)
            facts = {"switch": name, "use": use, "refused": refused}
            table = f"table{use.name}" if isinstance(use.table, Table) else use.name
            yield Alarm(AlarmKind.TABLE_NEARLY_FULL, f"{name}:{table}", facts)


def _refused_connections(s: State, now: float) -> Iterator[Alarm]:
    for reason, (peer, last_at) in s.refusals.last_connections.items():
        if now < last_at + CONNECTIONS_RECENT_S:
            yield Alarm(AlarmKind.CONNECTIONS_REFUSED, reason, {"peer": peer})


def _stale_counters(s: State, fabric: Fabric, now: float) -> Iterator[Alarm]:
    oldest = now - s.counters.stale_after_s
    for dpid, read in s.counters.read.items():
        if min(read) < oldest and dpid in fabric.switches:
            yield Alarm(AlarmKind.COUNTERS_STALE, fabric.name(dpid), {"what": read.oldest})


def _port_alarms(s: State, fabric: Fabric, now: float) -> Iterator[Alarm]:
    for reason, kind in _LLDP_KINDS.items():
        for at in _limited(_recent(s.refusals.packets[reason], now - PACKETS_RECENT_S), fabric):
            yield Alarm(kind, fabric.port_name(at))
    dropping = (at for at, drops in s.counters.drops.items() if drops.packets and port_exists(fabric, at))
    for at in _limited(dropping, fabric):
        _, packets, seconds = s.counters.drops[at]
        port_kind = "port" if LinkId(*at) in fabric.links else "host port"
        facts = {"port_kind": port_kind, "packets": packets, "seconds": seconds}
        yield Alarm(AlarmKind.PUNT_LIMIT_EXCEEDED, fabric.port_name(at), facts)
    for at in _limited(_recent(s.hosts.claims.refused, now - CLAIMS_RECENT_S), fabric):
        yield Alarm(AlarmKind.ADDRESSES_CLAIMED, fabric.port_name(at))


def _recent(counts: PortCounts, since: float) -> Iterator[PortRef]:
    return (at for at, last_at in counts.last.items() if last_at > since)


def _limited(ports: Iterable[PortRef], fabric: Fabric) -> list[PortRef]:
    """Return at most ``MOST_PORTS`` of the ports, and at most ``MOST_PORTS_OF_SWITCH`` of one switch."""
    of_switch = Counter[Dpid]()
    some = list[PortRef]()
    for at in ports:
        if at.dpid in fabric.switches and of_switch[at.dpid] < MOST_PORTS_OF_SWITCH and len(some) < MOST_PORTS:
            of_switch[at.dpid] += 1
            some.append(at)
    return sorted(some)


def port_exists(fabric: Fabric, at: PortRef) -> bool:
    switch = fabric.switches.get(at.dpid)
    return switch is not None and at.port in switch.ports


def part_alarm(key: PartKey, part: Part, is_excepted: bool | None, named: frozenset[JobId] | None) -> Alarm | None:
    """Return the alarm of a cable that is down, or of a named host that is down, else None.

    ``named``: the jobs that name the host; None if neither a job nor the inventory file names it."""
    if is_excepted or key.kind is PartKind.SWITCH or (key.kind is PartKind.HOST and named is None):
        return None
    kind = AlarmKind.LINK_DOWN if key.kind is PartKind.LINK else AlarmKind.HOST_DOWN
    return Alarm(kind, part.name, {"part": part})


def switch_alarms(
    down: Mapping[PartKey, Part], excepted: Mapping[PartKey, bool], known: int, roles: Mapping[Dpid | str, SwitchRole]
) -> Mapping[PartKey | None, Alarm]:
    """Return an alarm for each switch that is down; if there are many, one common alarm under the key None.

    ``known``: number of switches that are remembered or declared. ``roles``: role of each switch that has one, by dpid
    or by name."""
    missing = [part for key, part in down.items() if key.kind is PartKind.SWITCH and key not in excepted]
    expected = Counter[SwitchRole | None](roles.values())
    expected[None] = known - expected.total()
    of_role: dict[SwitchRole | None, Missed] = {}
    for role in (*SwitchRole, None):
        names = tuple(part.name for part in missing if _role(part, roles) is role)
        if names:
            of_role[role] = Missed(expected[role], names)
    of_all = Missed(known, tuple(part.name for part in missing))
    if any(map(_are_many, (of_all, *of_role.values()))):
        return {None: Alarm(AlarmKind.FABRIC_INCOMPLETE, "fabric", {"of_role": of_role})}
    return {part.key: Alarm(AlarmKind.SWITCH_DOWN, part.name, {"part": part}) for part in missing}


def subjects_with_unique_names(alarms: Mapping[Key, Alarm], shared_names: frozenset[str]) -> Mapping[Key, Alarm]:
    """Return the alarms of parts, each with a unique subject: if switches share a name, the dpid is added.

    ``shared_names``: the names that several switches have."""
    if not shared_names:
        return alarms
    parts = {key: part for key, alarm in alarms.items() if (part := alarm.facts.get("part"))}
    named = {
        key: replace(part, ends=tuple(end.with_unique_name(shared_names) for end in part.ends))
        for key, part in parts.items()
    }
    return {key: replace(alarm, subject=named[key].name) if key in named else alarm for key, alarm in alarms.items()}


def _role(part: Part, roles: Mapping[Dpid | str, SwitchRole]) -> SwitchRole | None:
    return roles.get(part.ends[0].at.dpid) or roles.get(part.ends[0].switch)


def _are_many(missed: Missed) -> bool:
    return len(missed.names) >= MANY_AT_LEAST and len(missed.names) > MANY_FRACTION * missed.expected


KEEP_STARTS_S = 60.0
"""Seconds after a restart in which an alarm that is raised again keeps its start time from before the restart.

The seconds begin when all known parts of the fabric are back, or when the controller stops waiting for them. In this
time, alarms that need a while, such as the alarm for stale counters, are raised again."""


class AlarmTimes:
    """Start time and silence of each raised alarm.

    ``before``: start, in monotonic seconds, of each alarm that was raised when the previous controller stopped. An
    entry is dropped when its alarm is raised again, and all entries are dropped at ``before_until``."""

    def __init__(self, before: Mapping[AlarmKey, float], before_until: float) -> None:
        self.before = before
        self._before_until = before_until
        self._groups: Sequence[Mapping[Any, Alarm]] = ()
        self._silences: Mapping[SilenceKey, Silence] = {}
        self._dated: Mapping[AlarmKey, Alarm] = SharedMap()

    @property
    def alarms(self) -> Mapping[AlarmKey, Alarm]:
        """Alarms as of the last call of ``dated``."""
        return self._dated

    def dated(
        self,
        groups: Sequence[Mapping[Any, Alarm]],
        silences: Mapping[SilenceKey, Silence],
        now: float,
        awaits_parts: bool,
    ) -> Mapping[AlarmKey, Alarm]:
        """Return the alarms with their start times and silences.

        An alarm that was not raised at the last call starts at ``now``, or at its start before the restart. ``groups``:
        raised alarms. An alarm must stay in the same group, since only changed entries are examined. ``awaits_parts``:
        whether missing parts may still be discovered after the restart."""
        changes: dict[AlarmKey, Alarm | None] = {}
        none: Mapping[Any, Alarm] = {}
        for before, raised in zip_longest(self._groups, groups, fillvalue=none):
            for _, was, alarm in differing(before, raised):
                goes_on = was is not None and alarm is not None and was.key == alarm.key
                if was and not goes_on:
                    changes.setdefault(was.key, None)
                if alarm and alarm != was:
                    since = self._dated[alarm.key].since if goes_on else self.before.get(alarm.key, now)
                    changes[alarm.key] = replace(alarm, since=since, silence=_silence(alarm.key, silences))
        if silences is not self._silences:
            self._silences = silences
            for key, alarm in self._dated.items():
                if key not in changes and alarm.silence != (silence := _silence(key, silences)):
                    changes[key] = replace(alarm, silence=silence)
        self._groups, self._dated = groups, updated(self._dated, changes)
        if self.before:
            if awaits_parts:
                self._before_until = max(self._before_until, now + KEEP_STARTS_S)
            left = {key: since for key, since in self.before.items() if key not in self._dated}
            self.before = left if now < self._before_until else {}
        return self._dated


def _silence(key: AlarmKey, silences: Mapping[SilenceKey, Silence]) -> Silence | None:
    return silences.get(key) or silences.get((key[0], ""))
