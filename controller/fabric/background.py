"""Background of every link: traffic that no announced flow can have sent.

``link_load`` measures the traffic of each link beyond the flows that rules count. Announced flows that no rule counts
yet may have sent part of this traffic. This module therefore subtracts, on each link, as much as the uncounted flows
can have sent. The limit follows from the traffic that their sources sent and their destinations received. The remaining
traffic is the background, so registering a job does not hide the traffic of others.

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
    """Yield arrays with an upper bound in bit/s, for each link, of the traffic of the uncounted flows.

    The first array is computed from the estimated traffic of the hosts (``Measured.sent_bps``). Each further array is
    computed from one column of ``Measured.most_sent_bps``, the largest possible traffic of the hosts.

    The bound is 0 on links without traffic beyond counted flows. On other links it is the smallest of three sums:

    - the traffic that the sources of the flows on the link sent,
    - the traffic that the destinations of the flows received,
    - for each flow, the smaller of the traffic of its source and of its destination."""
    place = measured.place
    src = np.array([place.get(hosts[flow.src_ip].uplink, -1) for flow in uncounted], np.int64)
    dst = np.array([place.get(hosts[flow.dst_ip].downlink, -1) for flow in uncounted], np.int64)
    rows_of = {links: _carrying(measured, links) for links in set(chain.from_iterable(uncounted.values()))}
    rows = [np.concatenate([rows_of[links] for links in sets]) for sets in uncounted.values()]
    links = np.concatenate(rows)
    flows = np.repeat(np.arange(len(rows)), [len(some) for some in rows])

    def by_host(of: Rows) -> tuple[Rows, Rows]:
        """Return the distinct pairs of a link and a host that has a flow on the link, as two arrays of link indices.

        A host is given by the index of its own link. ``of``: index of the source's uplink, or of the destination's
        downlink, by flow."""
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
    """Return the indices (``Measured.place``) of the given links that carry traffic beyond counted flows."""
    rows = np.array([measured.place[link] for link in links if link in measured.place], np.int64)
    carrying: Rows = rows[measured.beyond_bps[rows] > 0]
    return carrying


# ---- links that were busy

HOLD_S = 15.0
"""Seconds for which a link counts as busy after its background has ended, unless pinned flows use the link.

Intermittent traffic would otherwise attract flows between its bursts and drive them away again with each burst."""

NEAR = 0.9
"""Fraction of a link's largest recent background from which the link counts as still carrying that background."""

LEFT_S = 2 * SETTLE_S
"""Seconds for which the bytes of flows that have left a link may still hide background on this link."""


class _Held(NamedTuple):
    """Largest recent background of a link in bit/s, and the monotonic time at which the link last carried it."""

    bps: float
    at: float


class RecentBackground:
    """Largest background of each link in the last ``HOLD_S`` seconds."""

    def __init__(self) -> None:
        self.held: Mapping[LinkId, float] = {}
        """Largest recent background in bit/s of each link that carries less now; a new mapping on each change."""
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
        """Record the measured background of links between switches.

        Links of hosts are not needed, because no route can avoid them. ``flows``: flows pinned to each link. The record
        of a link that ``uncounted`` flows may use is dropped, because these flows may have sent the traffic."""
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

    A link in ``carrying`` (pinned flows use it) has its present background, unless flows have just ``left`` it. Any
    other link has the larger of its present and its ``held`` background. A link that ``uncounted`` flows may use keeps
    its present background."""
    kept = [link for link in held if link in left or link not in carrying]
    if not kept:
        return background_bps
    unknown = _links_of(uncounted)
    more = {link: held[link] for link in kept if link not in unknown}
    return {**background_bps, **{link: max(bps, background_bps.get(link, 0.0)) for link, bps in more.items()}}


def _links_of(uses: Uses) -> frozenset[LinkId]:
    return frozenset[LinkId]().union(*set(chain.from_iterable(uses.values())))
