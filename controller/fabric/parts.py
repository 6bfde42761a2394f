"""Remembered parts of the fabric, present or not: switches, cables between them, and hosts.

``KnownParts`` remembers a part that was seen until an operator forgets it, so that missing parts are noticed
(docs/explanation/restart-and-repair.md#what-is-remembered). ``DeclaredParts`` has the parts that the inventory file
declares. A part has the name that operators see: ``leaf1``, ``leaf1:3>spine2``, ``10.0.1.2``. ``now`` is monotonic
seconds, ``at`` seconds since 1970.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, TypeVar

from controller.fabric.topology import Dpid, Fabric, Host, Link, PortNo, PortRef, Switch, is_up
from controller.fabric.topology_state import DeclaredHost
from controller.shared_map import SharedMap, differing
from signalbox.errors import NO_SUCH_NAME, Conflict, FieldProblem, InvalidInput, cut

UNKNOWN_DPID = Dpid(-1)
"""Dpid in place of the unknown dpid of a switch that only the inventory file names; no real switch has this dpid."""

DECLARED = "declared "
"""Prefix of the id of a part that was never seen; the name of the part follows."""

MAX_NAMES = 1000
"""Largest number of part names in one request."""

WhyNot = Mapping[str, str]
"""Error texts by name, for names of things that are not parts of the fabric."""

NO_REASONS: WhyNot = {}


def unique_name(name: str, dpid: Dpid, shared_names: frozenset[str]) -> str:
    """Return the name of a switch, with its dpid (``leaf1(0x1)``) if several switches have the name."""
    return f"{name}({dpid:#x})" if name in shared_names else name


class PartKind(StrEnum):
    SWITCH = "switch"
    LINK = "link"
    HOST = "host"


class PartKey(NamedTuple):
    """Identity of a part."""

    kind: PartKind
    id: str
    """Dpid of a switch, both ports of a cable, or address of a host."""


class End(NamedTuple):
    """A port, with the last known names of its switch and of the port; port number 0 means the whole switch."""

    at: PortRef
    switch: str
    port: str = ""

    def with_unique_name(self, shared_names: frozenset[str]) -> End:
        """Return the end. If several switches share the name of its switch, the dpid follows the name."""
        return self._replace(switch=unique_name(self.switch, self.at.dpid, shared_names)) if self.seen else self

    @property
    def seen(self) -> bool:
        """Whether the dpid is known: the switch has connected, or the inventory file has its dpid."""
        return self.at.dpid != UNKNOWN_DPID

    @property
    def name(self) -> str:
        """Printed name: ``leaf1:3``, or ``leaf1:leaf1-eth3`` if the port number is unknown."""
        port = str(self.at.port) if self.at.port else self.port
        return f"{self.switch}:{port}" if port else self.switch


@dataclass(frozen=True, slots=True)
class Part:
    """A switch, cable or host that is remembered."""

    key: PartKey
    ends: tuple[End, ...]
    """Ends of the part: the switch itself, both ends of a cable, or the port of a host."""
    down_since: float | None = None
    """Time since which the part is down, in seconds since 1970; None while it is present or may still appear."""

    @property
    def kind(self) -> PartKind:
        return self.key.kind

    @property
    def seen(self) -> bool:
        return all(end.seen for end in self.ends)

    @property
    def name(self) -> str:
        """Name that operators see."""
        if self.key.id.startswith(DECLARED):
            return self.key.id.removeprefix(DECLARED)
        if self.kind is PartKind.HOST:
            return self.key.id
        return self.ends[0].name if self.kind is PartKind.SWITCH else f"{self.ends[0].name}>{self.ends[1].switch}"

    @property
    def names(self) -> set[str]:
        """All names that operators may use, among them the printed name."""
        names = {self.name, self.key.id}
        if self.kind is PartKind.LINK and self.seen:
            a, b = self.ends
            for end, other in ((a, b), (b, a)):
                ports = [str(end.at.port), end.port]
                names |= {f"{switch}:{port}" for switch in (end.switch, f"{end.at.dpid:#x}") for port in ports}
                names.add(f"{end.switch}:{other.switch}")
        return names


def switch_key(dpid: Dpid) -> PartKey:
    return PartKey(PartKind.SWITCH, f"{dpid:#x}")


def cable_key(a: PortRef, b: PortRef) -> PartKey:
    return PartKey(PartKind.LINK, " ".join(f"{end.dpid:#x}:{end.port}" for end in sorted((a, b))))


def host_key(ip: str) -> PartKey:
    return PartKey(PartKind.HOST, ip)


def switch_part(switch: Switch) -> Part:
    return Part(switch_key(switch.dpid), (End(PortRef(switch.dpid, PortNo(0)), switch.name),))


def cable_part(link: Link, switches: Mapping[Dpid, Switch]) -> Part:
    return Part(cable_key(link.src, link.dst), tuple(_end(at, switches) for at in sorted((link.src, link.dst))))


def host_part(host: Host, switches: Mapping[Dpid, Switch]) -> Part:
    return Part(host_key(host.ip), (_end(host.at, switches),))


def _end(at: PortRef, switches: Mapping[Dpid, Switch]) -> End:
    port = switches[at.dpid].ports.get(at.port)
    return End(at, switches[at.dpid].name, port.name if port else "")


# ---- declarations of the inventory file

PortName = tuple[str, str]
"""Names of a switch and of its port."""


class SwitchRole(StrEnum):
    """Role of a switch in the fabric, from the inventory file."""

    LEAF = "leaf"
    SPINE = "spine"


@dataclass(frozen=True, slots=True)
class DeclaredSwitch:
    """A switch of the inventory file."""

    name: str
    dpid: Dpid | None = None
    """Dpid of the switch; None if any switch with this name matches."""
    role: SwitchRole | None = None
    """Role of the switch; None if it is not declared."""
    rack: str = ""
    """Rack of the switch; empty if it is not declared."""


@dataclass(frozen=True, slots=True)
class DeclaredCable:
    """A cable between two ports."""

    a: PortName
    b: PortName


@dataclass(frozen=True, slots=True)
class DeclaredBundle:
    """Number of cables between two switches, at any ports."""

    a: str
    b: str
    cables: int


@dataclass(frozen=True, slots=True)
class Declared:
    """Contents of the inventory file. Switches named by cables, bundles or hosts are declared too."""

    hosts: tuple[DeclaredHost, ...] = ()
    switches: tuple[DeclaredSwitch, ...] = ()
    cables: tuple[DeclaredCable, ...] = ()
    bundles: tuple[DeclaredBundle, ...] = ()

    @property
    def dpid_of(self) -> dict[str, Dpid | None]:
        """Declared dpid of every switch, by name."""
        of_links = (name for cable in self.cables for name, _ in (cable.a, cable.b))
        of_bundles = (name for bundle in self.bundles for name in (bundle.a, bundle.b))
        implied = (*of_links, *of_bundles, *(host.switch for host in self.hosts))
        return {**dict.fromkeys(implied), **{switch.name: switch.dpid for switch in self.switches}}

    @property
    def rack_of(self) -> dict[Dpid, str]:
        """Rack of each switch that has a rack and a dpid."""
        return {switch.dpid: switch.rack for switch in self.switches if switch.rack and switch.dpid}

    @property
    def role_of(self) -> dict[Dpid | str, SwitchRole]:
        """Role of each switch with a declared role, by dpid, or by name if the dpid is not declared."""
        return {switch.dpid or switch.name: switch.role for switch in self.switches if switch.role}


# ---- stand-ins for declared parts

_NOWHERE = PortRef(UNKNOWN_DPID, PortNo(0))


class DeclaredParts:
    """Declarations of the inventory file, with the number of known parts that match each declaration.

    While no known part matches a declaration, a *stand-in* represents the missing part: a ``Part`` that was never seen.
    Declared hosts, and declared switches with a dpid, need no stand-in: their keys are known before they appear."""

    def __init__(self, declared: Declared) -> None:
        self.roles = declared.role_of
        """Role of each switch with a declared role, by dpid, or by name if the dpid is not declared."""
        self._dpids = declared.dpid_of
        self._hosts = {host.ip: host for host in declared.hosts}
        self._cables = {frozenset((cable.a, cable.b)): cable for cable in declared.cables}
        self._bundles = {frozenset((bundle.a, bundle.b)): bundle for bundle in declared.bundles}
        self._known: Counter[object] = Counter()

    @property
    def hosts(self) -> Iterator[PartKey]:
        return map(host_key, self._hosts)

    def all(self) -> Iterator[Part]:
        """Yield the parts of all declarations as they are before any part was seen: stand-ins, hosts and switches."""
        for name, dpid in self._dpids.items():
            at = _NOWHERE if dpid is None else PortRef(dpid, PortNo(0))
            key = _key(PartKind.SWITCH, name) if dpid is None else switch_key(dpid)
            yield Part(key, (End(at, name),))
        for host in self._hosts.values():
            yield Part(host_key(host.ip), (End(_NOWHERE, host.switch, host.port),))
        for cable in self._cables.values():
            yield _stand_in(End(_NOWHERE, *cable.a), End(_NOWHERE, *cable.b))
        for bundle in self._bundles.values():
            yield from (_of_bundle(bundle.a, bundle.b, n) for n in range(1, bundle.cables + 1))

    def count(self, part: Part, more: int) -> Iterator[tuple[Part, bool]]:
        """Count a part that became known (``more`` = 1) or was forgotten (``more`` = -1).

        Yields each stand-in that may have to be added or removed now, and whether it must exist from now on."""
        if not part.seen:
            return
        names = tuple(end.switch for end in part.ends)
        if part.kind is PartKind.SWITCH and names[0] in self._dpids and self._dpids[names[0]] is None:
            self._known[names[0]] += more
            yield Part(_key(PartKind.SWITCH, names[0]), (End(_NOWHERE, names[0]),)), not self._known[names[0]]
        if part.kind is not PartKind.LINK:
            return
        ports, pair = frozenset((end.switch, end.port) for end in part.ends), frozenset(names)
        if cable := self._cables.get(ports):
            self._known[ports] += more
            yield _stand_in(End(_NOWHERE, *cable.a), End(_NOWHERE, *cable.b)), not self._known[ports]
        if bundle := self._bundles.get(pair):
            self._known[pair] += more
            for n in range(1, bundle.cables + 1):
                yield _of_bundle(bundle.a, bundle.b, n), n > self._known[pair]

    def declares(self, part: Part) -> bool:
        """Return whether a declaration of the inventory file would have no matching part without this part.

        The result is False if another known part matches the declaration."""
        if not part.seen:
            return True
        name = part.ends[0].switch
        match part.kind:
            case PartKind.HOST:
                return part.key.id in self._hosts
            case PartKind.SWITCH if name in self._dpids:
                dpid = self._dpids[name]
                return self._known[name] <= 1 if dpid is None else dpid == part.ends[0].at.dpid
            case PartKind.LINK:
                ports = frozenset((end.switch, end.port) for end in part.ends)
                pair = frozenset(end.switch for end in part.ends)
                bundle = self._bundles.get(pair)
                return ports in self._cables or (bundle is not None and self._known[pair] <= bundle.cables)
        return False


def _key(kind: PartKind, name: str) -> PartKey:
    return PartKey(kind, f"{DECLARED}{name}")


def _stand_in(a: End, b: End) -> Part:
    return Part(_key(PartKind.LINK, f"{a.name}>{b.switch}"), (a, b))


def _of_bundle(a: str, b: str, number: int) -> Part:
    return Part(_key(PartKind.LINK, f"{a}>{b} (cable {number})"), (End(_NOWHERE, a), End(_NOWHERE, b)))


# ---- memory

MOST_OF_A_KIND = 16_384
"""Largest number of remembered parts of a kind. Invented switches or hosts must not fill the memory."""

CAUSE_S = 1.0
"""Longest time in seconds from the loss of a switch's cables and hosts until the loss of the switch is noticed."""

K = TypeVar("K")
V = TypeVar("V")


class KnownParts:
    """Remembered parts of the fabric, present or down.

    ``patience_s``: seconds in which expected parts may appear before they count as down. The time runs from the start
    of the controller, and starts again whenever an expected switch or cable appears. The time of a cable also starts
    again when the switch of the cable connects. ``hosts``: addresses that saved jobs name."""

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
        """Absent cables and hosts whose absence has a known cause: their switch is down, or has just returned."""
        self.absent: Mapping[PartKind, int] = {}
        """Number of absent parts of each kind, including parts that do not count as down yet."""
        self.awaited: frozenset[PartKey] = frozenset()
        """Parts known from before the start of the controller that have not appeared yet, and do not count as down."""
        self.declared = DeclaredParts(declared)
        """Parts that the inventory file declares."""
        self._patience_s = patience_s
        self._fabric = Fabric()
        self._known: dict[PartKey, Part] = {}
        self._present: set[PartKey] = set()
        self._plugged: dict[Dpid | str, set[PartKey]] = {}
        """Cables and hosts of each switch, by its dpid, or by its name if the switch was never seen."""
        self._hosts: dict[Dpid, set[str]] = {}
        self._cables: dict[PortRef, set[PartKey]] = {}
        self._connected: dict[str, set[Dpid]] = {}
        self._connected_at: dict[Dpid, float] = {}
        self._lost_at: dict[PartKey, float] = {}
        self._changed: set[PartKey] = set()
        self._explain_at = math.inf
        """Next time in monotonic seconds when ``explained`` changes because time passes."""
        self._count: Counter[PartKind] = Counter()
        self._count_present: Counter[PartKind] = Counter()
        self._since: float | None = None
        self._started_at: float | None = None
        self._awaited: set[PartKey] = set()
        self._restore(saved)
        self._awaited = {key for key, part in self._known.items() if part.down_since is None} | {*map(host_key, hosts)}
        self._judged_at = now + patience_s
        self._publish(now)

    def _restore(self, saved: Mapping[PartKey, Part]) -> None:
        """Restore saved parts, except never seen parts that are not declared any more or have appeared."""
        for part in self.declared.all():
            self._set(part.key, part)
        for key, part in saved.items():
            if part.seen:
                self._set(key, part)
        for key, part in saved.items():
            if not part.seen and key in self._known and not self._known[key].seen:
                self._set(key, replace(self._known[key], down_since=part.down_since))

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
                    _add_or_remove(self._connected, one.name, dpid, connected)
            if switch is None:
                self._connected_at.pop(dpid, None)
                self._vanished(switch_key(dpid), now)
            elif self._is_expected(switch):
                self._appeared(switch_part(switch), now)
            if was is None or switch is None:
                self._explain_at = now
            for ip in self._hosts.get(dpid, ()):
                self._follow_host(ip, fabric, now)

    def _is_expected(self, switch: Switch) -> bool:
        """Return whether the switch is known or declared.

        Any program that reaches the OpenFlow port can connect as a switch. An unexpected switch is therefore
        remembered only when a cable or host is connected to it."""
        declared = PartKey(PartKind.SWITCH, f"{DECLARED}{switch.name}")
        return switch_key(switch.dpid) in self._known or declared in self._known

    def _follow_links(self, before: Fabric, fabric: Fabric, now: float) -> None:
        """Update the cables, except circuits, which change with the connections of optical switches."""
        for _, was, link in differing(before.links, fabric.links):
            if was and not was.one_way and (link is None or link.dst != was.dst):
                self._vanished(cable_key(was.src, was.dst), now)
        for _, was, link in differing(before.links, fabric.links):
            if link and not link.one_way and link.src <= link.dst and (was is None or was.dst != link.dst):
                self._appeared(cable_part(link, fabric.switches), now)

    def _follow_hosts(self, before: Fabric, fabric: Fabric, now: float) -> None:
        for ip, was, host in differing(before.hosts, fabric.hosts):
            if was is None or host is None or was.at != host.at:
                if was:
                    _add_or_remove(self._hosts, was.at.dpid, ip, False)
                if host:
                    _add_or_remove(self._hosts, host.at.dpid, ip, True)
                self._follow_host(ip, fabric, now, is_new=was is None)

    def _follow_host(self, ip: str, fabric: Fabric, now: float, is_new: bool = False) -> None:
        """Update a host, which is present while its port is up, even if it sends nothing.

        A host that becomes known while its port is down, as after a restart, is down."""
        key, host = host_key(ip), fabric.hosts.get(ip)
        switch = fabric.switches.get(host.at.dpid) if host else None
        if host and is_up(fabric.switches, host.at):
            self._appeared(host_part(host, fabric.switches), now)
        elif key in self._known:
            self._vanished(key, now)
        elif is_new and host and switch and host.at.port in switch.ports and self._has_room(key):
            self._set(key, replace(host_part(host, fabric.switches), down_since=self._since))

    def _has_room(self, key: PartKey) -> bool:
        return key in self._known or self._count[key.kind] < MOST_OF_A_KIND

    def _appeared(self, part: Part, now: float) -> None:
        """Record that the part and its switches are present; forget absent cables that used its ports."""
        key = part.key
        if not self._has_room(key):
            return
        before = self._known.get(key)
        if part.kind is PartKind.SWITCH and before and before.down_since is not None:
            for of in (part.ends[0].at.dpid, part.name):
                for plugged in self._plugged.get(of, ()):
                    self._lost_at.setdefault(plugged, now)
        self._set(key, part)
        self._lost_at.pop(key, None)
        self._set_present(key, True)
        if key in self._awaited:
            self._awaited.discard(key)
            if part.kind is not PartKind.HOST:  # thousands of hosts, requested one by one, must not prolong the wait
                self._judged_at = now + self._patience_s
        if part.kind is PartKind.LINK:
            for end in part.ends:
                for other in self._cables[end.at] - {key}:
                    if other not in self._present:
                        self._set(other, None)
        for end in part.ends if part.kind is not PartKind.SWITCH else ():
            if switch_key(end.at.dpid) not in self._known:
                self._appeared(switch_part(self._fabric.switches[end.at.dpid]), now)

    def _vanished(self, key: PartKey, now: float) -> None:
        part = self._known.get(key)
        if part is None:
            return
        self._set_present(key, False)
        if part.down_since is None and key not in self._awaited:
            self._lost_at[key] = now
            self._set(key, replace(part, down_since=self._since))

    # ---- parts that operators forget

    def forget(self, names: Sequence[str], now: float) -> tuple[Part, ...]:
        """Forget these parts, and with a switch its cables and hosts; return all forgotten parts.

        A cable may be named by either of its ports, and a switch by its dpid. Raises ``InvalidInput`` for a name that
        no remembered part has, and ``Conflict`` for parts that are present or declared. In both cases nothing
        changes."""
        if not names or len(names) > MAX_NAMES:
            raise InvalidInput.of("names", f"1 to {MAX_NAMES} names are needed (given: {len(names)})")
        by_name = self._by_name()
        InvalidInput.refuse(
            FieldProblem(f"names[{n}]", problem, "" if name in by_name else NO_SUCH_NAME)
            for n, name in enumerate(names)
            if (problem := _name_problem(name, by_name.get(name, ())))
        )
        wanted = {name: _first_down(by_name[name]) for name in names}
        if problems := [text for name, part in wanted.items() if (text := self._why_not_forgotten(name, part))]:
            raise Conflict("; ".join(problems))
        gone = {part.key: part for part in wanted.values()}
        for part in wanted.values():
            if part.kind is PartKind.SWITCH:
                plugged = (self._known[key] for key in sorted(self._plugged.get(part.ends[0].at.dpid, ())))
                gone |= {one.key: one for one in plugged if not self._why_not_forgotten("", one)}
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
            for name in part.names:
                found[name].append(part)
        return found

    def _why_not_forgotten(self, name: str, part: Part) -> str:
        if part.down_since is None:
            return f"{name} is not down; only parts that are down can be forgotten"
        if self.declared.declares(part):
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
            self._set_present(key, False)
            self._lost_at.pop(key, None)
            self._awaited.discard(key)
        else:
            self._known[key] = part
        if before is None or part is None or before.ends != part.ends:
            for one, more in ((before, -1), (part, 1)):
                if one:
                    self._index(one, more)

    def _index(self, part: Part, more: int) -> None:
        for end in part.ends if part.kind is not PartKind.SWITCH else ():
            _add_or_remove(self._plugged, end.at.dpid if end.seen else end.switch, part.key, more > 0)
            if part.kind is PartKind.LINK and end.seen:
                _add_or_remove(self._cables, end.at, part.key, more > 0)
        for stand_in, needed in self.declared.count(part, more):
            if needed and stand_in.key not in self._known:
                self._set(stand_in.key, replace(stand_in, down_since=self._since))
            elif not needed:
                self._set(stand_in.key, None)

    def _set_present(self, key: PartKey, there: bool) -> None:
        if there is not (key in self._present):
            (self._present.add if there else self._present.discard)(key)
            self._count_present[key.kind] += 1 if there else -1

    def _publish(self, now: float) -> None:
        if len(self.awaited) != len(self._awaited):  # the set only shrinks
            self.awaited = frozenset(self._awaited)
        absent = {kind: self._count[kind] - self._count_present[kind] for kind in PartKind}
        if absent != self.absent:  # a saved part may have appeared without other changes
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
        """Return the monotonic time until which the loss of a switch explains why the part is down.

        The time is infinite while a switch of the part is down. If a part was down before the controller started,
        only a switch that is still down can explain the loss."""
        if part.down_since is None or part.kind is PartKind.SWITCH:
            return -math.inf
        lost_at = self._lost_at.get(part.key)
        until = -math.inf if lost_at is None else lost_at + CAUSE_S
        for end in part.ends:
            if end.seen and switch_key(end.at.dpid) in self._awaited:
                continue
            dpids = {end.at.dpid} & self._fabric.switches.keys() if end.seen else self._connected.get(end.switch)
            if not dpids:
                return math.inf
            for connected_at in (self._connected_at.get(dpid, -math.inf) for dpid in dpids):
                has_been_back = lost_at is None or lost_at > connected_at + CAUSE_S
                if part.kind is PartKind.LINK and not has_been_back:
                    until = max(until, connected_at + self._patience_s)
        return until


def _add_or_remove(index: dict[K, set[V]], key: K, value: V, more: bool) -> None:
    """Add the value to the index under this key, or remove it.

    Empty entries are deleted, because peers choose names and dpids and could fill the memory with them."""
    if more:
        index.setdefault(key, set()).add(value)
    elif found := index.get(key):
        found.discard(value)
        if not found:
            del index[key]


def _name_problem(name: str, parts: Sequence[Part]) -> str:
    """Return the error text if no remembered part has the name or several parts have it, else an empty string."""
    if not parts:
        return f"no remembered part of the fabric has the name '{cut(name)}'; signalbox fabric lists what is down"
    if sum(part.down_since is not None for part in parts) > 1:
        return f"'{cut(name)}' is the name of {len(parts)} parts; name one of {', '.join(p.key.id for p in parts[:4])}"
    return ""


def _first_down(parts: Sequence[Part]) -> Part:
    """Return the first of these parts that is down, or the first part if all are present."""
    return next((part for part in parts if part.down_since is not None), parts[0])
