"""Which flows use which links, by the running routes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import chain

from controller.fabric.topology import Link, LinkId
from controller.planning.problem import FlowId, Routes
from controller.shared_map import SharedMap, differing, updated
from signalbox.jobs.spec import JobId

NO_FLOWS: frozenset[FlowId] = frozenset()


class FlowsByLink:
    """Derives the flows on every link that routes use. Looks at routes that have changed only."""

    def __init__(self) -> None:
        self._routes: Routes = {}
        self._found: Mapping[LinkId, frozenset[FlowId]] = SharedMap()

    def __call__(self, routes: Routes) -> Mapping[LinkId, frozenset[FlowId]]:
        before, self._routes = self._routes, routes
        less, more = defaultdict[LinkId, set[FlowId]](set), defaultdict[LinkId, set[FlowId]](set)
        for flow, was, route in differing(before, routes):
            for link in chain.from_iterable(path for path, _ in was or ()):
                less[link].add(flow)
            for link in chain.from_iterable(path for path, _ in route or ()):
                more[link].add(flow)
        now = {link: (self._found.get(link, NO_FLOWS) - less[link]) | more[link] for link in {**less, **more}}
        self._found = updated(self._found, {link: flows or None for link, flows in now.items()})
        return self._found


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
