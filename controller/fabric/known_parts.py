"""Memory of the parts that the fabric has had, so that missing switches, cables and hosts are noticed.

A part that was seen is remembered until it is forgotten (docs/explanation/restart-and-repair.md). ``now`` is monotonic
seconds, ``at`` seconds since 1970. A part that does not change causes no work.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from controller.fabric.declared_parts import DeclaredParts
from controller.fabric.part_names import names_of
from controller.fabric.parts import (
    DECLARED,
    MAX_NAMES,
    Declared,
    Part,
    PartKey,
    PartKind,
    SwitchRole,
    cable_key,
    cable_part,
    host_key,
    host_part,
    switch_key,
    switch_part,
)
from controller.fabric.topology import Dpid, Fabric, PortRef, Switch, is_up
from controller.shared_map import SharedMap, differing
from signalbox.errors import NO_SUCH_NAME, Conflict, FieldProblem, InvalidInput, cut

MOST_OF_A_KIND = 16_384
"""Largest number of remembered parts of a kind.

A switch that invents other switches, or hosts, must not fill the memory."""

CAUSE_S = 1.0
"""Longest time in seconds from noticing the loss of a cable or host to noticing that its switch, the cause, is lost."""

K = TypeVar("K")
V = TypeVar("V")


class KnownParts:
    """Remembered parts of the fabric, present or down.

    ``patience_s``: seconds in which expected parts may appear before they count as down. The time runs from the start
    of the controller, and starts again whenever an expected switch or cable appears. For a cable it also starts again
    when the switch of the cable connects. ``hosts``: addresses that saved jobs name."""

    def __init__(
        self,
        declared: Declared,
        saved: Mapping[PartKey, Part],
        patience_s: float,
        now: float,
        hosts: Iterable[str] = (),
    ) -> None:
        self.parts: Mapping[PartKey, Part] = SharedMap()
        """All remembered parts, present or down; a new mapping on each change."""
        self.explained: Mapping[PartKey, bool] = SharedMap()
        """Cables and hosts whose absence is explained by a switch, so that they do not count as faults of their own.

        Their switch is down, or it has returned so recently that they may still return."""
        self.absent: Mapping[PartKind, int] = {}
        """Number of absent parts of each kind, including parts that do not count as down yet."""
        self.awaited: frozenset[PartKey] = frozenset()
        """Parts known from before the start of the controller that have not appeared yet, and do not count as down."""
        self._declared = DeclaredParts(declared)
        self._patience_s = patience_s
        self._fabric = Fabric()
        self._known: dict[PartKey, Part] = {}
        self._there: set[PartKey] = set()
        self._plugged: dict[Dpid | str, set[PartKey]] = {}
        """Cables and hosts of each switch, by its dpid, or by its name if the switch was never seen."""
        self._hosts: dict[Dpid, set[str]] = {}
        self._cables: dict[PortRef, set[PartKey]] = {}
        self._connected: dict[str, set[Dpid]] = {}
        self._connected_at: dict[Dpid, float] = {}
        self._went_at: dict[PartKey, float] = {}
        self._changed: set[PartKey] = set()
        self._explain_at = math.inf
        """Time in monotonic seconds when ``explained`` changes without a change of parts."""
        self._count: Counter[PartKind] = Counter()
        self._count_there: Counter[PartKind] = Counter()
        self._since: float | None = None
        self._started_at: float | None = None
        self._awaited: set[PartKey] = set()
        self._take(saved)
        self._awaited = {key for key, part in self._known.items() if part.down_since is None} | {*map(host_key, hosts)}
        self._judged_at = now + patience_s
        self._publish(now)

    def _take(self, saved: Mapping[PartKey, Part]) -> None:
        """Restore saved parts. A part that was never seen is restored only if it is still declared and unseen."""
        for part in self._declared.all():
            self._set(part.key, part)
        for key, part in saved.items():
            if part.seen:
                self._set(key, part)
        for key, part in saved.items():
            if not part.seen and key in self._known and not self._known[key].seen:
                self._set(key, replace(self._known[key], down_since=part.down_since))

    @property
    def roles(self) -> Mapping[Dpid | str, SwitchRole]:
        """Declared roles of switches, by dpid or by name."""
        return self._declared.roles

    @property
    def declared_hosts(self) -> Iterable[PartKey]:
        return self._declared.hosts

    # ---- changes of the fabric

    @property
    def known_switches(self) -> int:
        """Number of connected and absent switches as of the last call of ``follow``; a returning switch counts once."""
        return len(self._fabric.switches) + self.absent.get(PartKind.SWITCH, 0)

    def switch_connected(self, dpid: Dpid, now: float) -> None:
        """Record that a switch connected or reconnected, so that its cables have to be discovered again."""
        self._connected_at[dpid] = now

    def follow(self, fabric: Fabric, now: float, at: float) -> None:
        """Update the parts to the current fabric. Called ten times a second."""
        before, self._fabric, self._since = self._fabric, fabric, at
        if self._started_at is None:
            self._started_at = at
        if before is not fabric:
            self._follow_switches(before, fabric, now)
            self._follow_links(before, fabric, now)
            self._follow_hosts(before, fabric, now)
        if self._awaited and now >= self._judged_at:
            late, self._awaited = self._awaited, set()
            for key in late:
                if key in self._known and self._known[key].down_since is None:
                    self._set(key, replace(self._known[key], down_since=self._started_at))
            self._explain_at = now
        self._publish(now)

    def _follow_switches(self, before: Fabric, fabric: Fabric, now: float) -> None:
        for dpid, was, switch in differing(before.switches, fabric.switches):
            for one, connected in ((was, False), (switch, True)):
                if one:
                    _change(self._connected, one.name, dpid, connected)
            if switch is None:
                self._connected_at.pop(dpid, None)
                self._goes(switch_key(dpid), now)
            elif self._is_expected(switch):
                self._comes(switch_part(switch), now)
            if was is None or switch is None:
                self._explain_at = now
            for ip in self._hosts.get(dpid, ()):
                self._follow_host(ip, fabric, now)

    def _is_expected(self, switch: Switch) -> bool:
        """Return whether the switch is known or declared.

        Any other switch is remembered once a cable or host is connected to it: any program that reaches the OpenFlow
        port can connect as a switch."""
        declared = PartKey(PartKind.SWITCH, f"{DECLARED}{switch.name}")
        return switch_key(switch.dpid) in self._known or declared in self._known

    def _follow_links(self, before: Fabric, fabric: Fabric, now: float) -> None:
        """Update the cables. Circuits are not remembered: they change with the connections of optical switches."""
        for _, was, link in differing(before.links, fabric.links):
            if was and not was.one_way and (link is None or link.dst != was.dst):
                self._goes(cable_key(was.src, was.dst), now)
        for _, was, link in differing(before.links, fabric.links):
            if link and not link.one_way and link.src <= link.dst and (was is None or was.dst != link.dst):
                self._comes(cable_part(link, fabric.switches), now)

    def _follow_hosts(self, before: Fabric, fabric: Fabric, now: float) -> None:
        for ip, was, host in differing(before.hosts, fabric.hosts):
            if was is None or host is None or was.at != host.at:
                if was:
                    _change(self._hosts, was.at.dpid, ip, False)
                if host:
                    _change(self._hosts, host.at.dpid, ip, True)
                self._follow_host(ip, fabric, now, is_new=was is None)

    def _follow_host(self, ip: str, fabric: Fabric, now: float, is_new: bool = False) -> None:
        """Update a host. A host is present while its port is up, even if it is silent.

        A new host whose port is down, as after a restart, is down."""
        key, host = host_key(ip), fabric.hosts.get(ip)
        switch = fabric.switches.get(host.at.dpid) if host else None
        if host and is_up(fabric.switches, host.at):
            self._comes(host_part(host, fabric.switches), now)
        elif key in self._known:
            self._goes(key, now)
        elif is_new and host and switch and host.at.port in switch.ports and self._has_room(key):
            self._set(key, replace(host_part(host, fabric.switches), down_since=self._since))

    def _has_room(self, key: PartKey) -> bool:
        return key in self._known or self._count[key.kind] < MOST_OF_A_KIND

    def _comes(self, part: Part, now: float) -> None:
        key = part.key
        if not self._has_room(key):
            return
        before = self._known.get(key)
        if part.kind is PartKind.SWITCH and before and before.down_since is not None:
            for of in (part.ends[0].at.dpid, part.name):
                for plugged in self._plugged.get(of, ()):
                    self._went_at.setdefault(plugged, now)
        self._set(key, part)
        self._went_at.pop(key, None)
        self._is_there(key, True)
        if key in self._awaited:
            self._awaited.discard(key)
            if part.kind is not PartKind.HOST:  # hosts may be thousands, requested one after the other
                self._judged_at = now + self._patience_s
        if part.kind is PartKind.LINK:
            for end in part.ends:
                for other in self._cables[end.at] - {key}:
                    if other not in self._there:
                        self._set(other, None)
        for end in part.ends if part.kind is not PartKind.SWITCH else ():
            if switch_key(end.at.dpid) not in self._known:
                self._comes(switch_part(self._fabric.switches[end.at.dpid]), now)

    def _goes(self, key: PartKey, now: float) -> None:
        part = self._known.get(key)
        if part is None:
            return
        self._is_there(key, False)
        if part.down_since is None and key not in self._awaited:
            self._went_at[key] = now
            self._set(key, replace(part, down_since=self._since))

    # ---- parts that operators forget

    def forget(self, names: Sequence[str], now: float) -> tuple[Part, ...]:
        """Stop expecting these parts, and with a switch its cables and hosts; return all forgotten parts.

        A cable may be named by either of its ports, and a switch by its dpid. Raises ``InvalidInput`` for names of no
        part, and ``Conflict`` for parts that are present or declared. In both cases nothing changes."""
        if not names or len(names) > MAX_NAMES:
            raise InvalidInput.of("names", f"1 to {MAX_NAMES} names are needed (given: {len(names)})")
        by_name = self._by_name()
        InvalidInput.refuse(
            FieldProblem(f"names[{n}]", problem, "" if name in by_name else NO_SUCH_NAME)
            for n, name in enumerate(names)
            if (problem := _not_one(name, by_name.get(name, ())))
        )
        wanted = {name: _meant(by_name[name]) for name in names}
        if problems := [text for name, part in wanted.items() if (text := self._stays(name, part))]:
            raise Conflict("; ".join(problems))
        gone = {part.key: part for part in wanted.values()}
        for part in wanted.values():
            if part.kind is PartKind.SWITCH:
                plugged = (self._known[key] for key in sorted(self._plugged.get(part.ends[0].at.dpid, ())))
                gone |= {one.key: one for one in plugged if not self._stays("", one)}
        for key in gone:
            self._set(key, None)
        self._publish(now)
        return tuple(gone.values())

    def restore(self, parts: Iterable[Part], now: float) -> None:
        """Remember forgotten parts again, unless they have returned."""
        for part in parts:
            if part.key not in self._known:
                self._set(part.key, part)
        self._publish(now)

    def _by_name(self) -> Mapping[str, list[Part]]:
        found = defaultdict(list)
        for part in self._known.values():
            for name in names_of(part):
                found[name].append(part)
        return found

    def _stays(self, name: str, part: Part) -> str:
        """Return the error text if the part cannot be forgotten, else an empty string."""
        if part.down_since is None:
            return f"{name} is not down; only parts that are down can be forgotten"
        if self._declared.declares(part):
            return f"{name} is declared in the inventory file: remove it there, and restart the controller"
        return ""

    # ---- all changes of parts

    def _set(self, key: PartKey, part: Part | None) -> None:
        before = self._known.get(key)
        if before == part:
            return
        self._changed.add(key)
        if before is None or part is None:
            self._count[key.kind] += 1 if part else -1
        if part is None:
            del self._known[key]
            self._is_there(key, False)
            self._went_at.pop(key, None)
            self._awaited.discard(key)
        else:
            self._known[key] = part
        if before is None or part is None or before.ends != part.ends:
            for one, more in ((before, -1), (part, 1)):
                if one:
                    self._index(one, more)

    def _index(self, part: Part, more: int) -> None:
        for end in part.ends if part.kind is not PartKind.SWITCH else ():
            _change(self._plugged, end.at.dpid if end.seen else end.switch, part.key, more > 0)
            if part.kind is PartKind.LINK and end.seen:
                _change(self._cables, end.at, part.key, more > 0)
        for stand_in, needed in self._declared.count(part, more):
            if needed and stand_in.key not in self._known:
                self._set(stand_in.key, replace(stand_in, down_since=self._since))
            elif not needed:
                self._set(stand_in.key, None)

    def _is_there(self, key: PartKey, there: bool) -> None:
        if there is not (key in self._there):
            (self._there.add if there else self._there.discard)(key)
            self._count_there[key.kind] += 1 if there else -1

    def _publish(self, now: float) -> None:
        """Bring ``parts``, ``explained``, ``absent`` and ``awaited`` up to date with all changes so far."""
        if len(self.awaited) != len(self._awaited):  # the set only shrinks
            self.awaited = frozenset(self._awaited)
        absent = {kind: self._count[kind] - self._count_there[kind] for kind in PartKind}
        if absent != self.absent:  # also when a saved part has appeared unchanged
            self.absent = absent
        if not self._changed and now < self._explain_at:
            return
        self.parts = SharedMap.of(self.parts).updated({key: self._known.get(key) for key in self._changed})
        self._changed.clear()
        down = (part for part in self._known.values() if part.down_since is not None)
        until = {part.key: self._explained_until(part) for part in down}
        explained = {key: True for key, end in until.items() if end > now}
        self.explained = SharedMap.of(self.explained).become(explained)
        self._explain_at = min((end for end in until.values() if now < end < math.inf), default=math.inf)

    def _explained_until(self, part: Part) -> float:
        """Return the monotonic time until which a switch explains why the part is down.

        The time is infinite while a switch of the part is down. A part that was down before the start is explained only
        by a switch that is still down; otherwise the part was lost by itself."""
        if part.down_since is None or part.kind is PartKind.SWITCH:
            return -math.inf
        went_at = self._went_at.get(part.key)
        until = -math.inf if went_at is None else went_at + CAUSE_S
        for end in part.ends:
            if end.seen and switch_key(end.at.dpid) in self._awaited:
                continue
            dpids = {end.at.dpid} & self._fabric.switches.keys() if end.seen else self._connected.get(end.switch)
            if not dpids:
                return math.inf
            for connected_at in (self._connected_at.get(dpid, -math.inf) for dpid in dpids):
                has_been_back = went_at is None or went_at > connected_at + CAUSE_S
                if part.kind is PartKind.LINK and not has_been_back:
                    until = max(until, connected_at + self._patience_s)
        return until


def _change(index: dict[K, set[V]], key: K, value: V, more: bool) -> None:
    """Add the value to the index under this key, or remove it.

    Empty entries are deleted: peers choose names and dpids, and could otherwise fill the memory."""
    if more:
        index.setdefault(key, set()).add(value)
    elif found := index.get(key):
        found.discard(value)
        if not found:
            del index[key]


def _not_one(name: str, parts: Sequence[Part]) -> str:
    """Return the error text if the name means no part or is ambiguous, else an empty string."""
    if not parts:
        return f"no remembered part of the fabric has the name '{cut(name)}'"
    if sum(part.down_since is not None for part in parts) > 1:
        return f"'{cut(name)}' is the name of {len(parts)} parts; name one of {', '.join(p.key.id for p in parts[:4])}"
    return ""


def _meant(parts: Sequence[Part]) -> Part:
    """Return the part that the operator means: the first part that is down, or the first part if all are present."""
    return next((part for part in parts if part.down_since is not None), parts[0])
