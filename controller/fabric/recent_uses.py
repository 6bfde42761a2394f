"""Links that the packets of each rule may have used, now and within the last two windows.

In: the links that rules may use, by job, whenever they change; rows of samples. Out: pairs of a link and a rule whose
packets may have used the link, each with the time of the last possible use, as arrays of rows. Only jobs with changed
rules are examined.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, takewhile
from operator import is_
from typing import NamedTuple

import numpy as np

from controller.fabric.counter_samples import Floats, Rows, Samples
from controller.fabric.topology import LinkId
from controller.shared_map import differing


class Counted(NamedTuple):
    """Traffic that one rule counts: a flow between two addresses, or the ``part`` of its packets that the rule matches.

    ``part`` is None for all packets of an announced flow."""

    src_ip: str
    dst_ip: str
    part: Hashable = None


Uses = Mapping[Counted, tuple[frozenset[LinkId], ...]]
"""Links that the packets of each counting rule may use, as disjoint sets; many rules may share one set."""

NO_USES: Uses = {}

UsesOf = Mapping[str, Uses]
"""Uses by owner of the rules, for example a job; an owner keeps the same object while its uses do not change."""

Pair = tuple[str, str]
"""Source and destination address."""


class Appeared(NamedTuple):
    """Rules that have just appeared."""

    again: list[Counted]
    """Rules that were removed and are back, and whose flows had no other rule meanwhile."""
    anew: Mapping[Counted, list[Counted]]
    """New rules for pairs of addresses that had rules before, each with these earlier rules of its pair."""


@dataclass(frozen=True, slots=True, eq=False)
class Users:
    """Links that the packets of each rule may have used within the span, as arrays of pairs of link and rule."""

    links: Rows
    """Row of samples of the link in each pair."""
    flows: Rows
    """Row of samples of the rule in each pair."""
    until: Floats
    """Monotonic time at which the rule of each pair stopped using the link; infinite while the rule may use it."""
    gone: Rows
    """Rows of samples of rules that do not exist any more."""
    pairs: tuple[Pair, ...]
    """Source and destination address of each rule that exists now."""
    rows: Rows
    """Row of samples of each rule in ``pairs``; -1 for a rule without samples."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Contents of ``Users`` for one job."""

    uses: tuple[Uses, ...]
    """Uses of the job, latest first."""
    links: Rows
    flows: Rows
    until: Floats
    pairs: tuple[Pair, ...]
    rows: Rows
    known: Rows
    """Rows of samples of the job's rules; rules without samples are left out."""
    partial: bool
    """Whether some rule has no samples."""


_NONE = np.zeros(0, np.int64)
_NO_PART = _Part((), _NONE, _NONE, np.zeros(0), (), _NONE, _NONE, False)


class RecentUses:
    """Uses of links by rules, kept for ``span_s`` seconds after they end. Times are monotonic seconds."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._latest: UsesOf | None = None
        self._earlier: dict[str, list[tuple[float, Uses]]] = {}
        self._made_for: Counter[Counted] = Counter()
        self._rules_of: Counter[Pair] = Counter()
        self._gone: dict[Counted, float] = {}
        self._parts: dict[str, _Part] = {}
        self._numbering: tuple[object, object] | None = None
        self._users: Users | None = None

    def change(self, since: float, uses: UsesOf) -> Appeared:
        """Record that rules use these links from ``since`` on, and return the rules that have appeared."""
        before, self._latest = self._latest or {}, uses
        other = [name for name, was, now in differing(before, uses) if was != now]
        times = Counter(chain.from_iterable(uses.get(name, NO_USES) for name in other))
        times.subtract(chain.from_iterable(before.get(name, NO_USES) for name in other))
        appeared = [what for what, more in times.items() if more > 0 and what not in self._made_for]
        gone = [what for what, more in times.items() if more < 0 and self._made_for[what] + more == 0]
        known = {what[:2] for what in appeared if what[:2] in self._rules_of}
        others: dict[Pair, list[Counted]] = {pair: [] for pair in known}
        for what in chain.from_iterable(before.get(name, NO_USES) for name in other if known):
            if what[:2] in known:
                others[what[:2]].append(what)
        found = Appeared(
            [what for what in appeared if what in self._gone and what[:2] not in known],
            {what: others[what[:2]] for what in appeared if what[:2] in known},
        )
        for name in other:
            if name in before:
                self._earlier.setdefault(name, []).append((since, before[name]))
        self._made_for.update(times)
        for what in appeared:
            self._rules_of[what[:2]] += 1
            self._gone.pop(what, None)
        for what in gone:
            del self._made_for[what]
            self._gone[what] = since
            self._rules_of[what[:2]] -= 1
            if not self._rules_of[what[:2]]:
                del self._rules_of[what[:2]]
        if other:
            self._users = None
        return found

    def forget(self, now: float) -> list[Counted]:
        """Forget uses that ended more than ``span_s`` ago, and return the rules removed before that time."""
        oldest = now - self._span_s
        over = [what for what, _ in takewhile(lambda item: item[1] <= oldest, self._gone.items())]
        for what in over:
            del self._gone[what]
        for name, ended in list(self._earlier.items()):
            if ended[0][0] <= oldest:
                self._users = None
                self._earlier[name] = [(at, uses) for at, uses in ended if at > oldest]
                if not self._earlier[name]:
                    del self._earlier[name]
        return over

    def __contains__(self, what: Counted) -> bool:
        """Return whether this rule exists or existed within the span."""
        return what in self._made_for or what in self._gone

    def users(self, links: Samples[LinkId], flows: Samples[Counted]) -> Users:
        """Return the uses as arrays; the same object while nothing changes."""
        if self._numbering is None or self._numbering[0] != links.numbering:
            self._parts, self._users = {}, None
        counted_anew = self._numbering is None or self._numbering[1] != flows.numbering
        if self._users is None or counted_anew:
            self._numbering = links.numbering, flows.numbering
            self._parts = dict(self._followed(links, flows, counted_anew))
            self._users = self._joined(flows)
        return self._users

    @property
    def counted_pairs(self) -> frozenset[Pair]:
        """Address pairs of all rules that exist now."""
        return frozenset(self._rules_of)

    def _followed(
        self, links: Samples[LinkId], flows: Samples[Counted], counted_anew: bool
    ) -> Iterator[tuple[str, _Part]]:
        rows_of: dict[frozenset[LinkId], Rows] = {}
        latest = self._latest or {}
        for name in dict.fromkeys((*latest, *self._earlier)):
            earlier = self._earlier.get(name, [])[::-1]
            uses = latest.get(name, NO_USES), *(ended for _, ended in earlier)
            part = self._parts.get(name, _NO_PART)
            same = len(uses) == len(part.uses) and all(map(is_, uses, part.uses))
            if not same or (part.partial and counted_anew):
                part = _part(uses, (math.inf, *(at for at, _ in earlier)), links, flows, rows_of)
            yield name, part

    def _joined(self, flows: Samples[Counted]) -> Users:
        parts = [_NO_PART, *self._parts.values()]
        gone = flows.rows_of(self._gone)
        links, rules = (np.concatenate([getattr(part, name) for part in parts]) for name in ("links", "flows"))
        until = np.concatenate([part.until for part in parts])
        times = np.bincount(np.concatenate([part.known for part in parts]))
        if times.max(initial=0) > 1:  # a rule that passed to another job is in several parts
            links, rules, until = _latest_of_each(links, rules, until)
        return Users(
            links,
            rules,
            until,
            gone[gone >= 0],
            tuple(chain.from_iterable(part.pairs for part in parts)),
            np.concatenate([part.rows for part in parts]),
        )


def _part(
    uses: tuple[Uses, ...],
    until: tuple[float, ...],
    links: Samples[LinkId],
    flows: Samples[Counted],
    rows_of: dict[frozenset[LinkId], Rows],
) -> _Part:
    """Return the contents of ``Users`` for one job.

    ``until``: time when each of the ``uses`` ended. ``rows_of``: cache of the rows of each set of links."""
    used = [(what, sets, ended) for some, ended in zip(uses, until, strict=True) for what, sets in some.items()]
    known = dict.fromkeys(what for what, *_ in used)
    rows = dict(zip(known, flows.rows_of(known).tolist(), strict=True))
    link_rows, sizes, flow_rows, ends = [_NONE], [0], [0], [0.0]
    for what, sets, ended in used:
        for links_of in sets if rows[what] >= 0 else ():
            found = rows_of.get(links_of)
            if found is None:
                found = links.rows_of(links_of)
                found = rows_of[links_of] = found[found >= 0]
            link_rows.append(found)
            sizes.append(len(found))
            flow_rows.append(rows[what])
            ends.append(ended)
    pairs = (
        np.concatenate(link_rows),
        np.repeat(np.array(flow_rows, np.int64), sizes),
        np.repeat(np.array(ends, np.float64), sizes),
    )
    if len(used) > len(known):
        pairs = _latest_of_each(*pairs)
    of_now = np.array([rows[what] for what in uses[0]], np.int64)
    all_rows = np.array([*rows.values()], np.int64)
    return _Part(
        uses, *pairs, tuple(what[:2] for what in uses[0]), of_now, all_rows[all_rows >= 0], bool((all_rows < 0).any())
    )


def _latest_of_each(links: Rows, flows: Rows, until: Floats) -> tuple[Rows, Rows, Floats]:
    """Return each pair of a link and a flow once, with the latest of its times ``until``."""
    order = np.lexsort((-until, flows, links))
    links, flows, until = links[order], flows[order], until[order]
    first = np.ones(len(links), bool)
    first[1:] = (np.diff(links) != 0) | (np.diff(flows) != 0)
    return links[first], flows[first], until[first]
