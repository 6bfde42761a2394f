"""Drained parts: switches and cables that operators have taken out of use although they work.

In: names as operators write them, and the fabric. Out: the links that plans must not use; of these, the links without
flows, which rules must not use either. A drained part is identified by dpids and ports, so it stays drained when its
switch reconnects or changes its name.

``PartNames`` finds parts by name. A switch is named by its name or dpid. A cable is named by the port at either end
(``leaf1:3``, ``0x1:leaf1-eth3``), or by its printed name (``leaf1:3>spine2``). Two switch names mean all cables between
these switches (``leaf1:spine2``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from controller.fabric.parts import (
    MAX_NAMES,
    NO_REASONS,
    Part,
    PartKey,
    PartKind,
    WhyNot,
    cable_key,
    cable_part,
    switch_key,
    switch_part,
)
from controller.fabric.topology import Dpid, Fabric, Link, LinkId, PortRef, is_up, island_of
from signalbox.errors import NO_SUCH_NAME, Conflict, FieldProblem, InvalidInput, cut


def limited(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names as a tuple. Raises ``InvalidInput`` for more than ``MAX_NAMES`` names."""
    found = tuple(names)
    if len(found) > MAX_NAMES:
        raise InvalidInput.of("names", f"at most {MAX_NAMES} names are allowed (given: {len(found)})")
    return found


class PartNames:
    """Names of the parts of a fabric and of parts that are ``down``.

    A switch that is down is found by its name only if no connected switch has this name."""

    def __init__(self, fabric: Fabric, down: Iterable[Part]) -> None:
        self._fabric = fabric
        self._down = [*down]

    def switches(self, name: str) -> Sequence[Dpid]:
        return self._switches.get(name, ())

    def cables(self, name: str) -> Mapping[frozenset[PortRef], str]:
        """Return the cables with this name as pairs of ports, each with its printed name."""
        return self._cables.get(name) or self._cables.get(name.partition(">")[0], {})

    @cached_property
    def _switches(self) -> Mapping[str, Sequence[Dpid]]:
        there = {dpid: switch_part(switch) for dpid, switch in self._fabric.switches.items()}
        found: defaultdict[str, list[Dpid]] = defaultdict(list)
        taken = {part.name for part in there.values()}
        for part in (*there.values(), *self._down):
            if part.kind is PartKind.SWITCH and part.seen:
                dpid = part.ends[0].at.dpid
                found[part.key.id] = [dpid]
                if dpid in there or part.name not in taken:
                    found[part.name].append(dpid)
        return found

    @cached_property
    def _cables(self) -> Mapping[str, Mapping[frozenset[PortRef], str]]:
        found: defaultdict[str, dict[frozenset[PortRef], str]] = defaultdict(dict)
        switches, links = self._fabric.switches, self._fabric.links.values()
        there = (
            cable_part(link, switches)
            for link in links
            if link.src < link.dst and not link.one_way and {link.src.dpid, link.dst.dpid} <= switches.keys()
        )
        for part in (*there, *self._down):
            if part.kind is PartKind.LINK and part.seen:
                for name in part.names:
                    found[name][frozenset(end.at for end in part.ends)] = part.name
        return found

    @cached_property
    def _hosts(self) -> Mapping[str, str]:
        hosts = self._fabric.hosts.values()
        return {self._fabric.port_name(host.at): host.ip for host in hosts}

    def why_not(self, name: str, no_parts: WhyNot) -> tuple[str, str]:
        """Return why ``name`` names no switch and no cable, as an error text and an error code (see ``FieldProblem``).

        ``no_parts``: error texts for names of things that are not parts of the fabric."""
        here, colon, _ = name.partition(":")
        if name in no_parts:
            return no_parts[name], ""
        if name in self._never_seen:
            return f"'{cut(name)}' is declared but was never seen; it can be drained once it has been connected", ""
        if not colon or here not in self._switches:
            return (
                f"there is no switch '{cut(here)}'; a part is a switch (spine2), a cable (leaf1:3, by its port), or "
                "all cables between two switches (leaf1:spine2)",
                NO_SUCH_NAME,
            )
        if name in self._hosts:
            return f"'{cut(name)}' leads to host {self._hosts[name]}; only cables between switches can be drained", ""
        return f"'{cut(name)}': {here} has no such cable; signalbox fabric lists all cables", NO_SUCH_NAME

    @cached_property
    def _never_seen(self) -> frozenset[str]:
        return frozenset(part.name for part in self._down if not part.seen)


Places = Mapping[str, Dpid]
"""Switch of each host, by the address of the host."""

NO_PLACES: Places = {}

Drainable = frozenset[PortRef] | Dpid
"""Drained part: a cable, given by its two ports, or a switch with all its cables, given by the dpid."""

MAX_NAMED = 4
"""Largest number of parts that an error message names."""


@dataclass(frozen=True, slots=True)
class Drain:
    """A drained part."""

    part: Drainable
    name: str
    """Name of the part at the time of the drain."""
    since: float
    """Time of the drain in seconds since 1970."""

    @property
    def key(self) -> PartKey:
        """Key of the part, as in ``KnownParts``."""
        return cable_key(*self.part) if isinstance(self.part, frozenset) else switch_key(self.part)

    def covers(self, part: Part) -> bool:
        """Return whether ``part`` is the drained part or one of its cables."""
        ends = () if isinstance(self.part, frozenset) or part.kind is not PartKind.LINK else part.ends
        return part.key == self.key or any(end.at.dpid == self.part for end in ends)

    def holds(self, link: Link) -> bool:
        """Return whether the link belongs to the drained part."""
        if isinstance(self.part, frozenset):
            return link.src in self.part and link.dst in self.part
        return self.part in (link.src.dpid, link.dst.dpid)


class Sender(NamedTuple):
    """A port from which packets could reach a drained part."""

    src: PortRef
    dst: PortRef
    """Port at the other end of the cable."""
    name: str
    """Name of the switch of ``src``."""


class DrainedPart(NamedTuple):
    """Location of a drained part."""

    drain: Drain
    links: frozenset[LinkId]
    """Existing links of the part."""
    senders: tuple[Sender, ...]
    """Ports from which packets could reach the part, including ports of cables that are down."""
    hosts: tuple[str, ...]
    """Addresses of the hosts that are connected to the part."""


NOT_DRAINED: Mapping[str, DrainedPart] = {}


class Drains:
    """All drained parts."""

    def __init__(self, saved: Mapping[str, Drain]) -> None:
        self.parts: Mapping[str, Drain] = saved
        """Drains by name; a new mapping on each change."""
        self.waiting: frozenset[LinkId] = frozenset()
        """Drained links on which flows may still be planned.

        A drained link waits here, because more flows use the drained links than may move at a time. Waiting links are
        not saved: after a restart, all drained links are excluded at once."""

    def drain(
        self,
        names: Iterable[str],
        fabric: Fabric,
        now: float,
        down: Collection[Part] = (),
        hosts: Places = NO_PLACES,
        no_parts: WhyNot = NO_REASONS,
    ) -> tuple[str, ...]:
        """Drain parts and return their names.

        - ``down``: parts that are down, which can be drained before they return.
        - ``hosts``: expected hosts that are not in the fabric.
        - ``no_parts``: names of things that are not parts of the fabric, each with the reason why it cannot be drained.
        - ``now``: seconds since 1970.

        Raises ``InvalidInput`` for names of no part that can be drained, and ``Conflict`` when switches with hosts
        would be cut off. In both cases nothing changes."""
        found = {drain.part: drain for drain in _parts_named(names, fabric, down, now, no_parts)}
        name_of = {drain.part: drain.name for drain in self.parts.values()}
        parts = {**self.parts}
        for part, drain in found.items():
            if part not in name_of:  # a replaced switch is a different part with the same name
                name_of[part] = drain.key.id if drain.name in parts else drain.name
                parts[name_of[part]] = replace(drain, name=name_of[part])
        leaves = {*hosts.values(), *(host.at.dpid for host in fabric.hosts.values() if is_up(fabric.switches, host.at))}
        links = fabric.links
        _refuse_cut_off(fabric, leaves, found, drained_links(self.parts, links), drained_links(parts, links))
        self.waiting |= drained_links(parts, fabric.links) - drained_links(self.parts, fabric.links)
        self.parts = parts
        return tuple(name_of[part] for part in found)

    def undrain(self, names: Iterable[str], fabric: Fabric, down: Collection[Part] = ()) -> None:
        """Put drained parts back into use. ``down``: as for ``drain``.

        Raises ``InvalidInput`` for names of no drained part, and then changes nothing."""
        gone: set[str] = set()
        problems = []
        by_end = {name.partition(">")[0]: name for name in self.parts}
        by_part = {drain.part: name for name, drain in self.parts.items()}
        known = PartNames(fabric, down)
        for number, name in enumerate(limited(names)):
            switches = known.switches(name)
            meant: set[Drainable] = {*known.cables(name), *(switches if len(switches) == 1 else ())}
            here = {name, by_end.get(name, name)} & self.parts.keys() or {by_part[p] for p in meant & by_part.keys()}
            if not here:
                text = f"'{cut(name)}' is not drained; drained parts: {_first_names([*self.parts]) or 'none'}"
                problems.append(FieldProblem(f"names[{number}]", text, NO_SUCH_NAME))
            gone |= here
        InvalidInput.refuse(problems)
        self.restore({name: drain for name, drain in self.parts.items() if name not in gone}, fabric.links)

    def restore(
        self, parts: Mapping[str, Drain], links: Mapping[LinkId, Link], waiting: frozenset[LinkId] = frozenset()
    ) -> None:
        """Set the drained parts to exactly ``parts``. ``waiting``: drained links to add to ``self.waiting``."""
        self.parts = parts
        self.waiting = (self.waiting | waiting) & drained_links(parts, links)

    def exclude(self, links: Mapping[LinkId, Link], flows: Mapping[LinkId, Collection[object]], most: float) -> None:
        """Remove cables from ``waiting``, so that the next plan moves their flows away.

        At least one cable is removed. Further cables are removed as long as all removed cables together have at most
        ``most`` flows. ``flows``: flows that use each link."""
        room = most
        for link in sorted(self.waiting):
            if link not in self.waiting:
                continue  # the link is the other direction of an earlier link
            cable = {link, *_reverse_links([links[link]])} if link in links else {link}
            on_it = sum(len(flows.get(one, ())) for one in cable)
            if room < most and on_it > room:
                return
            room -= on_it
            self.waiting -= cable


def links_named(
    names: Iterable[str], fabric: Fabric, down: Collection[Part], no_parts: WhyNot = NO_REASONS
) -> frozenset[LinkId]:
    """Return the existing links of the parts with these names. A name has one of the forms of ``Drains.drain``.

    Raises ``InvalidInput``."""
    found = _parts_named(names, fabric, down, 0.0, no_parts)
    return drained_links({drain.name: drain for drain in found}, fabric.links)


def links_of_parts(parts: Mapping[str, Drain], links: Mapping[LinkId, Link]) -> Mapping[str, Sequence[Link]]:
    """Return the links of each part. One pass over the links serves all parts."""
    of_switch: dict[Dpid, list[Link]] = {
        drain.part: [] for drain in parts.values() if not isinstance(drain.part, frozenset)
    }
    for link in links.values() if of_switch else ():
        for dpid in {link.src.dpid, link.dst.dpid} & of_switch.keys():
            of_switch[dpid].append(link)
    found: dict[str, Sequence[Link]] = {}
    for name, drain in parts.items():
        if isinstance(drain.part, frozenset):
            near = (links.get(LinkId(*end)) for end in drain.part)
            found[name] = [link for link in near if link and drain.holds(link)]
        else:
            found[name] = of_switch[drain.part]
    return found


def drained_parts(
    drains: Mapping[str, Drain], fabric: Fabric, known: Mapping[PartKey, Part]
) -> Mapping[str, DrainedPart]:
    """Return the location of each drained part, by name. ``known``: all remembered parts."""
    if not drains:
        return NOT_DRAINED
    links, hosts = links_of_parts(drains, fabric.links), _hosts_of(drains, fabric)
    return {
        name: DrainedPart(
            drain,
            frozenset(link.id for link in links[name]),
            tuple(_senders(drain, links[name], fabric, known)),
            tuple(sorted(hosts[name])),
        )
        for name, drain in drains.items()
    }


def _senders(drain: Drain, links: Iterable[Link], fabric: Fabric, known: Mapping[PartKey, Part]) -> Iterator[Sender]:
    """Yield the ports at the far ends of the cables of a switch, or both ports of a cable.

    A remembered cable that is down is included, because it may still carry packets."""
    names: dict[tuple[PortRef, PortRef], str] = {}
    one = known.get(drain.key)
    for part in known.values() if isinstance(drain.part, int) else [one] if one else ():
        if part.kind is PartKind.LINK and part.seen and drain.covers(part):
            a, b = part.ends
            names |= {(a.at, b.at): a.switch, (b.at, a.at): b.switch}
    names |= {(link.src, link.dst): fabric.name(link.src.dpid) for link in links}
    yield from (Sender(src, dst, name) for (src, dst), name in sorted(names.items()) if src.dpid != drain.part)


def _hosts_of(drains: Mapping[str, Drain], fabric: Fabric) -> Mapping[str, list[str]]:
    found: Mapping[str, list[str]] = {name: [] for name in drains}
    names = {drain.part: name for name, drain in drains.items()}
    for ip, host in fabric.hosts.items():
        if host.at.dpid in names and is_up(fabric.switches, host.at):
            found[names[host.at.dpid]].append(ip)
    return found


def drained_links(parts: Mapping[str, Drain], links: Mapping[LinkId, Link]) -> frozenset[LinkId]:
    return frozenset(link.id for link in chain.from_iterable(links_of_parts(parts, links).values()))


def without(links: Mapping[LinkId, Link], excluded: Collection[LinkId]) -> Mapping[LinkId, Link]:
    """Return all links except the excluded links; the same object when no link is excluded."""
    return {name: link for name, link in links.items() if name not in excluded} if excluded else links


def excluded_links(parts: Mapping[str, DrainedPart], waiting: frozenset[LinkId]) -> frozenset[LinkId]:
    """Return the drained links on which no flow is planned any more.

    ``waiting``: drained links on which flows may still be planned (``Drains.waiting``)."""
    return frozenset[LinkId]().union(*(part.links for part in parts.values())) - waiting


def forwarding_links(
    links: Mapping[LinkId, Link], excluded: frozenset[LinkId], used: Collection[LinkId]
) -> Mapping[LinkId, Link]:
    """Return the links over which rules may send packets: all links except those excluded links that no route uses.

    ``used``: links of routes. A cable keeps or loses both directions together, because acknowledgements travel back on
    the cables of their flow."""
    both = {*used, *_reverse_links(links[link] for link in used if link in links)} if excluded else ()
    return without(links, excluded.difference(both))


def _reverse_links(links: Iterable[Link]) -> Iterator[LinkId]:
    return (LinkId(*link.dst) for link in links if not link.one_way)


def with_links(fabric: Fabric, links: Mapping[LinkId, Link]) -> Fabric:
    """Return the fabric with its links replaced; the same object when ``links`` are the fabric's own."""
    return fabric if links is fabric.links else replace(fabric, links=links)


def _parts_named(
    names: Iterable[str], fabric: Fabric, down: Collection[Part], now: float, no_parts: WhyNot
) -> Iterator[Drain]:
    """Yield the parts that the names mean.

    Raises ``InvalidInput`` for ambiguous names, and names of no part."""
    known = PartNames(fabric, down)
    problems: list[FieldProblem] = []
    for number, name in enumerate(limited(names)):
        switches, cables = known.switches(name), known.cables(name)
        if len(switches) > 1:
            dpids = ", ".join(f"{dpid:#x}" for dpid in sorted(switches))
            problems.append(FieldProblem(f"names[{number}]", f"switches {dpids} have the name '{name}': use the dpid"))
        elif switches:
            yield Drain(switches[0], name, now)
        elif cables:
            yield from (Drain(ends, part_name, now) for ends, part_name in cables.items())
        else:
            problems.append(FieldProblem(f"names[{number}]", *known.why_not(name, no_parts)))
    InvalidInput.refuse(problems)


def _refuse_cut_off(
    fabric: Fabric,
    leaves: Collection[Dpid],
    parts: Collection[Drainable],
    before: Collection[LinkId],
    after: Collection[LinkId],
) -> None:
    """Raise ``Conflict`` if draining ``parts`` would cut off some switches with hosts from the others.

    A switch with hosts can never be drained, because its hosts reach other hosts only through this switch. ``leaves``:
    switches with hosts. ``before``, ``after``: drained links without and with ``parts``."""
    for leaf in sorted(leaf for leaf in leaves if leaf in parts):
        raise Conflict(f"hosts on {fabric.name(leaf)} would have no path to others: nothing is drained")
    leaves = fabric.switches.keys() & leaves
    was, would = (island_of(fabric.switches, without(fabric.links, drained)) for drained in (before, after))
    islands: dict[tuple[Dpid, Dpid], list[Dpid]] = {}
    for leaf in sorted(leaves):
        islands.setdefault((was[leaf], would[leaf]), []).append(leaf)
    split = [one for one in islands if sum(other[0] == one[0] for other in islands) > 1]
    if split:
        alone = min((islands[one] for one in split), key=len)
        named = _first_names([fabric.name(leaf) for leaf in alone])
        raise Conflict(f"hosts on {named} would have no path to others: nothing is drained")


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
