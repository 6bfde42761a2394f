"""The background of every link: what was measured on it, less what may be announced flows that are not counted yet.

A flow is not counted before its counters reach back a whole window (``link_load``). Until then a part of what its
source sends beyond counted flows may be on any link that it may use, and is taken off there. A link keeps all that
these hosts cannot have sent, or their destinations received: registering a job hides no traffic of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import numpy as np

from controller.fabric.counter_samples import Floats, Rows
from controller.fabric.link_load import Measured, in_use
from controller.fabric.recent_uses import Uses
from controller.fabric.topology import Host, LinkId


def background(measured: Measured, uncounted: Uses, hosts: Mapping[str, Host]) -> Mapping[LinkId, float]:
    """Bit/s of every link that has any. ``uncounted``: announced flows that are not counted yet, with all links that
    each may use."""
    bps = measured.beyond_bps
    if uncounted and bps.any():
        most_bps = _most_bps(measured, uncounted, hosts)
        left = bps - most_bps
        bps = np.where(most_bps > 0, np.where(left > measured.noise_bps, left, 0.0), bps)
    return in_use(measured, bps)


def _most_bps(measured: Measured, uncounted: Uses, hosts: Mapping[str, Host]) -> Floats:
    """Per link the most that these flows can have carried there: what their sources sent, what their destinations
    received, and flow by flow the smaller of both. 0 on links that carry nothing beyond counted flows."""
    place = measured.place
    src = np.array([place.get(hosts[flow.src_ip].uplink, -1) for flow in uncounted], np.int64)
    dst = np.array([place.get(hosts[flow.dst_ip].downlink, -1) for flow in uncounted], np.int64)
    sent_bps = np.append(measured.sent_bps, np.inf)
    rows_of = {links: _carrying(measured, links) for links in set(chain.from_iterable(uncounted.values()))}
    rows = [np.concatenate([rows_of[links] for links in sets]) for sets in uncounted.values()]
    links = np.concatenate(rows)
    flows = np.repeat(np.arange(len(rows)), [len(some) for some in rows])

    def by_host(of: Rows) -> Floats:
        """Each host once, however many of the flows it has."""
        pairs = np.sort(links * len(sent_bps) + of[flows] % len(sent_bps))
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique would hash: far slower
        return np.bincount(pairs // len(sent_bps), sent_bps[pairs % len(sent_bps)], len(place)).astype(np.float64)

    by_flow = np.bincount(links, np.minimum(sent_bps[src], sent_bps[dst])[flows], len(place))
    most: Floats = np.minimum(by_flow, np.minimum(by_host(src), by_host(dst)))
    return most


def _carrying(measured: Measured, links: frozenset[LinkId]) -> Rows:
    """The places of those that carry something beyond counted flows."""
    rows = np.array([measured.place[link] for link in links if link in measured.place], np.int64)
    carrying: Rows = rows[measured.beyond_bps[rows] > 0]
    return carrying
