"""What follows from parts of the fabric that are down: which are told, saved, and raise alarms.

One fault is one alarm. A part that is ``excepted`` raises none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from controller.alarms import Alarm, Missed
from controller.fabric.drains import Drain
from controller.fabric.parts import Part, PartKey, PartKind, SwitchRole, host_key, switch_key, told_apart
from controller.fabric.topology import Dpid, Fabric, Switch
from controller.jobs.job import Job
from controller.memo import ChangedKeys
from controller.shared_map import updated
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind

Key = TypeVar("Key")

MANY_AT_LEAST = 5
MANY_FRACTION = 0.25
"""When so many switches, and more than this part of all or of those of a role, are down, they are one alarm: the fabric
is another one than is known, or the control network is cut."""


class NamedHosts:
    """Derives the hosts that jobs or the inventory file name. Looks at jobs that have changed."""

    def __init__(self, declared: Iterable[PartKey]) -> None:
        self._changed = ChangedKeys[JobId]()
        self._of_job: dict[JobId, frozenset[str]] = {}
        self._jobs_of: Counter[str] = Counter()
        self._declared = frozenset(declared)
        self._named: Mapping[PartKey, bool] = updated({}, dict.fromkeys(self._declared, True))

    def __call__(self, jobs: Mapping[JobId, Job]) -> Mapping[PartKey, bool]:
        """Each with True."""
        changed, gone = self._changed(jobs)
        looked_at: set[str] = set()
        for job_id in (*changed, *gone):
            before = self._of_job.pop(job_id, frozenset())
            addresses = jobs[job_id].addresses if job_id in jobs else frozenset()
            if addresses:
                self._of_job[job_id] = addresses
            self._jobs_of.update(addresses - before)
            self._jobs_of.subtract(before - addresses)
            looked_at |= before ^ addresses
        changes: dict[PartKey, bool | None] = {}
        for ip in looked_at:
            key, named = host_key(ip), self._jobs_of[ip] > 0
            if not named:
                del self._jobs_of[ip]
            if named is not (key in self._named) and key not in self._declared:
                changes[key] = True if named else None
        self._named = updated(self._named, changes)
        return self._named


def if_down(_: PartKey, part: Part) -> Part | None:
    return part if part.down_since is not None else None


def if_cable(_: PartKey, part: Part) -> Part | None:
    return part if part.kind is PartKind.LINK and part.seen else None


def if_switch(_: PartKey, part: Part) -> Part | None:
    return part if part.kind is PartKind.SWITCH else None


def saved_part(_: PartKey, part: Part, named: bool | None) -> Part | None:
    """What a restart should know of the part. Of hosts only those that are down and named: the others are found again,
    and a host that invents others must not fill the state."""
    if part.kind is PartKind.HOST:
        return part if named and part.down_since is not None else None
    return part if part.seen or part.down_since is not None else None


def drained_keys(drains: Mapping[str, Drain], down: Mapping[PartKey, Part]) -> frozenset[PartKey]:
    """The drained switches, and the cables that are down and drained. ``drains``: by name."""
    cables = {drain.key for drain in drains.values() if isinstance(drain.part, frozenset)} & down.keys()
    switches = [drain for drain in drains.values() if isinstance(drain.part, int)]
    of_switches = (key for key, part in down.items() if any(drain.covers(part) for drain in switches))
    return frozenset((*cables, *of_switches, *(drain.key for drain in switches)))


def excepted(
    explained: Mapping[PartKey, bool],
    taken: tuple[Dpid, ...],
    drained: frozenset[PartKey],
    down: Mapping[PartKey, Part],
) -> Mapping[PartKey, bool]:
    """The parts of those that are ``down`` that raise no alarm, each with True. ``explained``: by another part that is
    down. ``taken``: switches that another controller is the master of, which is another alarm. ``drained``: taken out
    of use, which explains no host: such a switch raises no alarm, and should have none."""
    silent = {down[key].name for key in drained & down.keys() if key.kind is PartKind.SWITCH}
    hosts = (key for key in explained if key.kind is PartKind.HOST) if silent else ()
    changes: dict[PartKey, bool | None] = {key: None for key in hosts if down[key].ends[0].switch in silent}
    return updated(explained, {**changes, **dict.fromkeys((*map(switch_key, taken), *drained), True)})


def part_alarm(key: PartKey, part: Part, is_excepted: bool | None, named: bool | None) -> Alarm | None:
    """Of a cable that is down, or a host that is named."""
    if is_excepted or key.kind is PartKind.SWITCH or (key.kind is PartKind.HOST and not named):
        return None
    kind = AlarmKind.LINK_DOWN if key.kind is PartKind.LINK else AlarmKind.HOST_DOWN
    return Alarm(kind, part.name, {"part": part})


def switch_alarms(
    down: Mapping[PartKey, Part],
    excepted: Mapping[PartKey, bool],
    known: int,
    roles: Mapping[Dpid | str, SwitchRole],
) -> Mapping[PartKey | None, Alarm]:
    """One for each switch that is down, or one for all, with None. ``known``: switches that there are or should be.
    ``roles``: see ``Declared.role_of``."""
    missing = [part for key, part in down.items() if key not in excepted]
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


def shared_names(known: Mapping[PartKey, Part], switches: Mapping[Dpid, Switch]) -> frozenset[str]:
    """The names that several switches have, of those that are known and those that are connected."""
    names = {part.ends[0].at.dpid: part.name for part in known.values() if part.seen}
    names |= {dpid: switch.name for dpid, switch in switches.items()}
    return frozenset(name for name, count in Counter(names.values()).items() if count > 1)


def subjects_told_apart(alarms: Mapping[Key, Alarm], shared_names: frozenset[str]) -> Mapping[Key, Alarm]:
    """Alarms of parts, so that two with one name are two. ``shared_names``: those of several switches."""
    if not shared_names:
        return alarms
    parts = {key: part for key, alarm in alarms.items() if (part := alarm.facts.get("part"))}
    named = {
        key: replace(part, ends=tuple(end.told_apart(shared_names) for end in part.ends)) for key, part in parts.items()
    }
    return {key: replace(alarm, subject=named[key].name) if key in named else alarm for key, alarm in alarms.items()}


def switches_told_apart(fabric: Fabric, shared_names: frozenset[str]) -> Fabric:
    """With other names for switches that share theirs."""
    if not shared_names:
        return fabric
    switches = {
        dpid: replace(switch, name=told_apart(switch.name, dpid, shared_names))
        for dpid, switch in fabric.switches.items()
    }
    return replace(fabric, switches=switches)


def _role(part: Part, roles: Mapping[Dpid | str, SwitchRole]) -> SwitchRole | None:
    return roles.get(part.ends[0].at.dpid) or roles.get(part.ends[0].switch)


def _are_many(missed: Missed) -> bool:
    return len(missed.names) >= MANY_AT_LEAST and len(missed.names) > MANY_FRACTION * missed.expected
