"""Assignment of switches to members: which member is the holder (OpenFlow master) of each switch. Pure.

In: for each switch the members that it is connected to; members that are alive or draining; racks; present holders.
Out: the new holders of the switches whose holder changes. The result does not depend on the order of the input.
docs/explanation/several-controllers.md#assignment describes how holders are chosen.

The ranking of members by a hash (rendezvous hashing) keeps moves few. Only the switches of a removed member, and those
that a new member gets, move. If no member has room for a switch, the least loaded one gets it. A switch whose holder
cannot control it moves at once. All other moves are *improvements*, at most ``MOST_MOVES`` at a time. Improvements end
after some time, because each one brings the assignment closer to one that needs no improvement.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from math import ceil
from typing import NamedTuple

from controller.fabric.topology import Dpid

SLACK = Fraction(5, 4)
"""Largest number of switches of a member, as a multiple of an equal share of all switches. The product is rounded
up."""

MOST_MOVES = 8
"""Largest number of switches that move at a time although their holders can control them."""


class Holder(NamedTuple):
    """A member that is the holder of switches. ``id``: random text that identifies its process."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class Site:
    """All inputs of the assignment."""

    members: frozenset[Holder]
    """Members that are alive."""
    connected: Mapping[Dpid, Collection[Holder]]
    """Members that report a connection to a switch, by switch."""
    holders: Mapping[Dpid, Holder]
    """Present holders, alive or not, of known switches. A switch without a holder has no entry."""
    draining: frozenset[str] = frozenset()
    """Names of members that should be the holder of no switch."""
    racks: Mapping[Dpid, str] = field(default_factory=dict)
    """Rack by switch. The switches of a rack should have the same holder."""


def assign(site: Site, most_moves: int = MOST_MOVES) -> dict[Dpid, Holder]:
    """Return the new holders of the switches whose holder changes.

    ``most_moves``: largest number of improvements. A switch to which no member is connected keeps its holder."""
    plan = _Plan(site)
    plan.place_homeless()
    plan.improve(most_moves)
    return {dpid: holder for dpid, holder in plan.holders.items() if site.holders.get(dpid) != holder}


def most_held(switches: int, members: int) -> int:
    """Return how many switches one of ``members`` members may hold.

    The number is ``SLACK`` times an equal share of all ``switches``, rounded up; 0 without members."""
    return ceil(SLACK * switches / members) if members else 0


class _Plan:
    """Assignment in progress.

    ``holders``: holder so far of each switch. A switch without a holder that can control it has no entry."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._choices = {dpid: _choices(site, dpid) for dpid in sorted(site.connected)}
        """Members that may be the holder, best first, by switch."""
        usable = {member for choices in self._choices.values() for member in choices}
        known = site.connected.keys() | site.holders.keys()
        self._most = most_held(len(known), len({one for one in usable if one.name not in site.draining} or usable))
        self.holders = {dpid: site.holders[dpid] for dpid in self._choices if self._is_controlled(dpid)}
        self._load = Counter(self.holders.values())

    def _is_controlled(self, dpid: Dpid) -> bool:
        """Return whether the present holder, which may be draining, can control the switch."""
        holder = self._site.holders.get(dpid)
        return holder in self._site.members and holder in self._site.connected[dpid]

    def _room(self, member: Holder) -> int:
        return self._most - self._load[member]

    def _move(self, dpid: Dpid, member: Holder) -> None:
        if dpid in self.holders:
            self._load[self.holders[dpid]] -= 1
        self.holders[dpid] = member
        self._load[member] += 1

    def _best(self, dpid: Dpid) -> Holder:
        choices = self._choices[dpid]
        fallback = min(choices, key=lambda one: self._load[one])
        return next((member for member in choices if self._room(member) > 0), fallback)

    def place_homeless(self) -> None:
        """Find a holder for each switch that has none.

        If some member has room for all such switches of a rack, they get the same holder. If not, each switch gets the
        best holder for itself."""
        groups: defaultdict[str, list[Dpid]] = defaultdict(list)
        for dpid, choices in self._choices.items():
            if choices and dpid not in self.holders:
                groups[_group(self._site, dpid)].append(dpid)
        for group in groups.values():
            shared = [one for one in self._choices[group[0]] if all(one in self._choices[dpid] for dpid in group)]
            whole = next((member for member in shared if self._room(member) >= len(group)), None)
            for dpid in group:
                self._move(dpid, whole or self._best(dpid))

    def improve(self, most_moves: int) -> None:
        for _, (dpid, member) in zip(range(most_moves), self._improvements(), strict=False):
            self._move(dpid, member)

    def _improvements(self) -> Iterator[tuple[Dpid, Holder]]:
        """Yield the improvements one by one; the caller must make each move before it requests the next improvement."""
        for dpid, holder in list(self.holders.items()):
            if holder not in self._choices[dpid]:  # it drains
                yield dpid, self._best(dpid)
        for dpid, holder in sorted(self.holders.items(), key=lambda held: (_score(self._key(held[0]), held[1]), held)):
            if self._room(holder) < 0 and self._room(best := self._best(dpid)) > 0:
                yield dpid, best
        away: defaultdict[tuple[str, Holder], list[Dpid]] = defaultdict(list)
        for dpid, holder in self.holders.items():
            if holder != (first := self._choices[dpid][0]):
                away[_group(self._site, dpid), first].append(dpid)
        for (_, first), group in away.items():
            if self._room(first) >= len(group):
                yield from ((dpid, first) for dpid in group)

    def _key(self, dpid: Dpid) -> str:
        return _group(self._site, dpid)


def _choices(site: Site, dpid: Dpid) -> list[Holder]:
    """Return the members that may be the holder, best first; draining members only if no other member may."""
    able = [member for member in set(site.connected[dpid]) if member in site.members]
    able = [member for member in able if member.name not in site.draining] or able
    group = _group(site, dpid)
    return sorted(able, key=lambda member: (_score(group, member), member), reverse=True)


def _group(site: Site, dpid: Dpid) -> str:
    """Return the text whose hash ranks the members for the switch: its rack, or its dpid."""
    return f"rack {site.racks[dpid]}" if dpid in site.racks else f"switch {dpid:#x}"


def _score(group: str, member: Holder) -> int:
    return _hash(group, member.name)


@lru_cache(maxsize=1 << 17)
def _hash(group: str, name: str) -> int:
    return int.from_bytes(blake2b(f"{group}\0{name}".encode(), digest_size=8).digest(), "big")
