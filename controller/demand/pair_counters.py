"""Bytes and packets from one address to another, summed over all rules that have ever counted them.

In: the cumulative counters of each switch's rules, at each poll. Out: totals by pair that never decrease, in arrays.
Over time, different rules count a pair: a learning rule, then a pin, then one pin per subflow. When a rule is read for
the first time, its count is added only if the switch did not have the rule at the previous poll.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.fabric.counter_samples import Counted, Floats, Rows
from controller.fabric.topology import Dpid
from controller.shared_map import Memo
from signalbox.jobs.subflows import Pair


class Totals(NamedTuple):
    """Totals, one value per requested pair. Bytes include all headers from Ethernet on."""

    at: Floats
    """Time in monotonic seconds of the latest poll of the switch that counts the pair; NaN without such a switch."""
    bytes: Floats
    packets: Floats

    def with_others(self, others: Totals, wanted: NDArray[np.bool_]) -> Totals:
        """Return these totals plus, for the ``wanted`` pairs, the totals in ``others``."""
        return Totals(
            np.where(wanted, np.fmax(self.at, others.at), self.at),
            self.bytes + np.where(wanted, others.bytes, 0.0),
            self.packets + np.where(wanted, others.packets, 0.0),
        )


Key = tuple[str, str, str]
"""Source address, destination address, and id of the job that reported the connection.

The id is empty for rules that belong to no reported connection. Such a rule matches all packets of the pair, or a class
of ports."""

JobOfConnection = Mapping[tuple[str, str, int, int], str]
"""Job of each reported connection, by addresses and ports."""

FORGET_S = 600.0
"""Seconds after which a rule that is in no poll of its switch is forgotten. A single poll may be incomplete."""

FEW = 4096
"""Number of rules whose memory is negligible.

Old rules are forgotten when there are more rules than this number plus twice the number of rules that were kept last
time."""

AWAY_S = 60.0
"""Seconds after which the counts of a disconnected switch are final."""


class _Places(NamedTuple):
    rules: Rows
    rows: Rows


class PairCounters:
    """Totals of pairs, one row per ``Key``, until ``keep`` drops the row."""

    def __init__(self) -> None:
        self.connections: JobOfConnection = {}
        """Reported connections; the rule of such a connection counts only for the job that reported it."""
        self._version = 0
        self._row_of: dict[Key, int] = {}
        self._totals = np.zeros((0, 3))
        self._rule_of: dict[tuple[Dpid, Counted], int] = {}
        self._rules = np.zeros((0, 3))
        self._places = defaultdict[tuple[Dpid, bool], Memo[Dpid, tuple[Counted, ...], JobOfConnection, int, _Places]](
            lambda: Memo(self._find_places)
        )
        self.news = False
        """Whether something was counted since a reader last set this to False."""
        self._kept = 0
        self.polled: dict[Dpid, float] = {}
        """Time of the latest poll of all rules, by connected switch."""
        self._left: dict[Dpid, tuple[float, frozenset[Pair]]] = {}

    def count(self, dpid: Dpid, at: float, what: tuple[Counted, ...], counts: Floats, all_rules: bool = True) -> None:
        """Record one poll of a switch.

        - ``what``: traffic that each rule counts; the same object while it does not change.
        - ``counts``: bytes and packets so far; one row per rule.
        - ``all_rules``: whether all rules of the switch were polled, not only the rules that are polled more often."""
        first = dpid not in self.polled
        if first and not all_rules:
            return
        self.news = True
        if all_rules:
            self.polled[dpid] = at
        rules, rows = self._places[dpid, all_rules](dpid, what, self.connections, self._version)
        last = self._rules[rules, 1:]
        start = np.where(np.isnan(last), counts if first else 0.0, last)
        added_anew = (counts < start).any(axis=1, keepdims=True)
        more = counts - np.where(added_anew, 0.0, start)
        self._rules[rules, 0], self._rules[rules, 1:] = at, counts
        np.add.at(self._totals[:, 1:], rows, more)
        self._totals[rows, 0] = at

    @property
    def has_grown(self) -> bool:
        """Whether most rules are new since rules were last forgotten."""
        return len(self._rule_of) > 2 * self._kept + FEW

    def switch_left(self, dpid: Dpid) -> None:
        """Stop trusting the switch's counters: they may restart from zero after it reconnects."""
        if dpid in self.polled:
            self._left[dpid] = self.polled[dpid], self._counted_by(dpid)
        self.polled.pop(dpid, None)
        for all_rules in (True, False):
            self._places.pop((dpid, all_rules), None)
        self._rules[[rule for (of, _), rule in self._rule_of.items() if of == dpid], 1:] = np.nan

    def interrupted(self, now: float, late_s: float) -> frozenset[Pair]:
        """Return the pairs whose counters have missed traffic since the last call.

        Either the switch that counts the pair was disconnected, or it is connected and was not polled for at least
        ``late_s`` seconds. In the second case, each call returns the pair until the switch is polled again."""
        left = self._left
        late = [dpid for dpid, at in self.polled.items() if late_s <= now - at]
        self._left = {
            dpid: (at, pairs) for dpid, (at, pairs) in left.items() if dpid not in self.polled and now - at < AWAY_S
        }
        return frozenset[Pair]().union(*(pairs for _, pairs in left.values()), *map(self._counted_by, late))

    def _counted_by(self, dpid: Dpid) -> frozenset[Pair]:
        at = self.polled[dpid]
        rules = ((what, rule) for (of, what), rule in self._rule_of.items() if of == dpid)
        return frozenset(what[:2] for what, rule in rules if self._rules[rule, 0] >= at)

    def keep(self, pairs: Set[Pair]) -> None:
        """Forget the totals of all pairs except ``pairs``, and the rules that switches have no longer installed.

        A rule counts as gone when it is missing from the polls of its switch for ``FORGET_S`` seconds, or for
        ``AWAY_S`` if its pair is not in ``pairs``. A rule must not be forgotten while its switch still has it: the next
        poll would take it for a new rule, and add its whole count again."""
        newest = self._rules[:, 0].max(initial=0.0)
        rows = {key: row for key, row in self._row_of.items() if key[:2] in pairs}
        rules = {
            (dpid, what): rule
            for (dpid, what), rule in self._rule_of.items()
            if self.polled.get(dpid, newest) - self._rules[rule, 0] < (FORGET_S if what[:2] in pairs else AWAY_S)
        }
        self._kept = len(rules)
        if len(rows) == len(self._row_of) and len(rules) == len(self._rule_of):
            return
        self._totals = self._totals[list(rows.values())]
        self._rules = self._rules[list(rules.values())]
        self._row_of = {key: row for row, key in enumerate(rows)}
        self._rule_of = {key: rule for rule, key in enumerate(rules)}
        self._version += 1

    def rows(self, pairs: Sequence[Pair], job: str, _version: int) -> Rows:
        """Return the row of each pair, -1 for a pair without a row. The result is valid until ``version`` changes.

        A row counts the rules for the connections of ``job``, or, if ``job`` is empty, all other rules."""
        return np.array([self._row_of.get((*pair, job), -1) for pair in pairs], np.int64)

    @property
    def version(self) -> int:
        """Number that changes whenever the results of ``rows`` become invalid."""
        return self._version

    def totals(self, rows: Rows) -> Totals:
        """Return the totals in the order of the rows; a row of -1 has no time and no bytes."""
        nothing = np.array([[np.nan, 0.0, 0.0]])
        at, counted, packets = np.concatenate([self._totals, nothing])[rows].T
        return Totals(at, counted, packets)

    def _find_places(
        self, dpid: Dpid, what: tuple[Counted, ...], connections: JobOfConnection, _version: int
    ) -> _Places:
        rules = np.array([self._rule_of.setdefault((dpid, one), len(self._rule_of)) for one in what], np.int64)
        known = len(self._row_of)
        keys = [_key(one, connections) for one in what]
        rows = np.array([self._row_of.setdefault(key, len(self._row_of)) for key in keys], np.int64)
        self._rules = _longer(self._rules, len(self._rule_of), np.nan)
        self._totals = _longer(self._totals, len(self._row_of), 0.0)
        self._version += len(self._row_of) > known
        return _Places(rules, rows)


def _key(what: Counted, connections: JobOfConnection) -> Key:
    if isinstance(what.part, tuple):
        src, dst = what.part
        if src is not None and dst is not None:
            return what.src_ip, what.dst_ip, connections.get((*what[:2], src.value, dst.value), "")
    return what.src_ip, what.dst_ip, ""


def _longer(values: Floats, length: int, fill: float) -> Floats:
    return np.concatenate([values, np.full((length - len(values), values.shape[1]), fill)])
