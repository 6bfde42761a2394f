"""Background of every link: measured traffic minus what announced flows that no rule counts yet may have sent.

A source may send more than the counted flows account for. Until its flows are counted, this excess may be on any link
that they may use, so it is subtracted from each of these links. A link keeps as background what these sources cannot
have sent, or what their destinations have not received. Registering a job therefore does not hide traffic of others.

``RecentBackground`` keeps links that were busy until lately from counting as free.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np

from controller.fabric.counter_samples import Floats, Rows
from controller.fabric.link_load import SETTLE_S, Measured, in_use
from controller.fabric.recent_uses import Uses
from controller.fabric.topology import Host, LinkId


def background(measured: Measured, uncounted: Uses, hosts: Mapping[str, Host]) -> Mapping[LinkId, float]:
    """Return the background in bit/s of every link that has any.

    ``uncounted``: announced flows that no rule counts yet, each with all links that it may use."""
    bps = measured.beyond_bps
    if uncounted and bps.any():
        seems_bps, *at_most_bps = _of_flows(measured, uncounted, hosts)
        left = bps - seems_bps
        certain = (left > measured.noise_bps) & (measured.certain_bps > np.transpose(at_most_bps)).any(axis=1)
        bps = np.where(seems_bps > 0, np.where(certain, left, 0.0), bps)
    return in_use(measured, bps)


def _of_flows(measured: Measured, uncounted: Uses, hosts: Mapping[str, Host]) -> Iterator[Floats]:
    """Yield arrays that have, for each link, an upper bound of the traffic of these uncounted flows.

    The first array has what they seem to have carried. The others have the most that they can have carried in each part
    of the window. The bound is the least of three sums: over the sources what each sent, over the destinations what
    each received, and over the flows the smaller of what source and destination carried. Traffic of counted flows is
    left out. The bound is 0 on links without other traffic."""
    place = measured.place
    src = np.array([place.get(hosts[flow.src_ip].uplink, -1) for flow in uncounted], np.int64)
    dst = np.array([place.get(hosts[flow.dst_ip].downlink, -1) for flow in uncounted], np.int64)
    rows_of = {links: _carrying(measured, links) for links in set(chain.from_iterable(uncounted.values()))}
    rows = [np.concatenate([rows_of[links] for links in sets]) for sets in uncounted.values()]
    links = np.concatenate(rows)
    flows = np.repeat(np.arange(len(rows)), [len(some) for some in rows])

    def by_host(of: Rows) -> tuple[Rows, Rows]:
        """Return links and hosts as pairs, each host once per link however many of the flows it has."""
        pairs = np.sort(links * (len(place) + 1) + of[flows] % (len(place) + 1))
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique would hash: far slower
        return np.divmod(pairs, len(place) + 1)

    ends = by_host(src), by_host(dst)
    for of_hosts in (measured.sent_bps, *measured.most_sent_bps.T):
        sent_bps = np.append(of_hosts, np.inf)
        by_flow = np.bincount(links, np.minimum(sent_bps[src], sent_bps[dst])[flows], len(place))
        by_end = [np.bincount(of, sent_bps[end], len(place)) for of, end in ends]
        yield np.minimum(by_flow, np.minimum(*by_end))


def _carrying(measured: Measured, links: frozenset[LinkId]) -> Rows:
    """Return the places of the given links that carry traffic beyond counted flows."""
    rows = np.array([measured.place[link] for link in links if link in measured.place], np.int64)
    carrying: Rows = rows[measured.beyond_bps[rows] > 0]
    return carrying


# ---- links that were busy

HOLD_S = 15.0
"""Seconds from the end of the background on a link until the link counts as free for flows on other links.

Intermittent traffic would otherwise attract flows between its bursts and drive them away again with each burst."""

NEAR = 0.9
"""Fraction of its recent maximum from which a link counts as still carrying that maximum."""

LEFT_S = 2 * SETTLE_S
"""Seconds in which the bytes of flows that have left a link may hide background on it."""


class _Held(NamedTuple):
    """Most background that a link carried lately, in bit/s, and when it last carried it, in monotonic seconds."""

    bps: float
    at: float


class RecentBackground:
    """Largest background of each link within ``HOLD_S``."""

    def __init__(self) -> None:
        self.held: Mapping[LinkId, float] = {}
        """Largest background in bit/s of the links that carry less now; each change makes another object."""
        self.left: frozenset[LinkId] = frozenset()
        """Links that flows have left within ``LEFT_S``."""
        self._most: dict[LinkId, _Held] = {}
        self._flows: Mapping[LinkId, Collection[object]] = {}
        self._left_at: dict[LinkId, float] = {}

    def follow(
        self,
        background_bps: Mapping[LinkId, float],
        flows: Mapping[LinkId, Collection[object]],
        uncounted: Uses,
        now: float,
    ) -> None:
        """Record what was measured on links between switches; links of hosts do not matter, no route avoids them.

        ``flows``: flows pinned to each link. The record of a link that ``uncounted`` flows may use is dropped, because
        the traffic may have been theirs."""
        unknown = _links_of(uncounted) if self._most else frozenset()
        self._most = {link: most for link, most in self._most.items() if now < most.at + HOLD_S and link not in unknown}
        for link, bps in background_bps.items():
            most = self._most.get(link)
            if most is None or bps >= NEAR * most.bps:
                self._most[link] = _Held(max(bps, most.bps if most else 0.0), now)
        was, self._flows = self._flows, {link: flows[link] for link in self._most if link in flows}
        gone = {link for link, before in was.items() if not set(before) <= set(flows.get(link, ()))}
        self._left_at = {link: at for link, at in self._left_at.items() if now < at + LEFT_S} | dict.fromkeys(gone, now)
        self.held = {link: most.bps for link, most in self._most.items() if most.bps > background_bps.get(link, 0.0)}
        self.left = frozenset(self._left_at)


def planned_background(
    background_bps: Mapping[LinkId, float],
    held: Mapping[LinkId, float],
    left: frozenset[LinkId],
    carrying: Container[LinkId],
    uncounted: Uses,
) -> Mapping[LinkId, float]:
    """Return the background to plan with, in bit/s.

    For links in ``carrying``, which pinned flows use, it is the present background, unless flows have just left them.
    For other links it is at least what is ``held``. Links that ``uncounted`` flows may use keep the present value."""
    kept = [link for link in held if link in left or link not in carrying]
    if not kept:
        return background_bps
    unknown = _links_of(uncounted)
    more = {link: held[link] for link in kept if link not in unknown}
    return {**background_bps, **{link: max(bps, background_bps.get(link, 0.0)) for link, bps in more.items()}}


def _links_of(uses: Uses) -> frozenset[LinkId]:
    return frozenset[LinkId]().union(*set(chain.from_iterable(uses.values())))
