"""Which flows use which links, by the running routes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain

from controller.fabric.topology import Link, LinkId
from controller.memo import Index
from controller.planning.problem import FlowId, Route
from signalbox.jobs.spec import JobId

NO_FLOWS: frozenset[FlowId] = frozenset()


class FlowsByLink(Index[FlowId, Route, LinkId]):
    """Derives the flows on every link that routes use, from the routes that have changed."""

    def __init__(self) -> None:
        super().__init__(lambda route: chain.from_iterable(path for path, _ in route))


def lost_links(on: Mapping[LinkId, Collection[FlowId]], links: Mapping[LinkId, Link]) -> frozenset[LinkId]:
    """The links that flows use and that are not there."""
    return frozenset(link for link in on if link not in links)


def flows_on(
    links: frozenset[LinkId], on: Mapping[LinkId, frozenset[FlowId]], waiting: Mapping[JobId, frozenset[FlowId]]
) -> Mapping[LinkId, frozenset[FlowId]]:
    """The flows that use each of these links; those without any are left out. ``waiting``: the flows of jobs that
    are not planned until their hosts are found; they do not count, because no plan would move them."""
    if not links:
        return {}
    unplanned = frozenset[FlowId]().union(*waiting.values())
    left = {link: on[link] - unplanned for link in links if link in on}
    return {link: flows for link, flows in left.items() if flows}
