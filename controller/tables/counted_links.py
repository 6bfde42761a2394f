"""Links that the packets of announced flows may use, both flows that rules count and flows that no rule counts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, zip_longest

from controller.fabric.counter_samples import NO_USES, Uses, UsesOf
from controller.fabric.topology import CandidatePaths, Fabric, Host, Link, LinkId
from controller.jobs.job import Job
from controller.planning.problem import FlowId
from controller.planning.snapshot import Pairs
from controller.shared_map import ChangedKeys, differing, updated
from controller.tables.pinned_table import Pin, counted
from controller.tables.pins import PinSet
from controller.tables.running_routes import possible_links
from signalbox.jobs.spec import JobId


class Uncounted:
    """Derivation of the announced flows that are not counted yet.

    A new job has uncounted flows from its registration on, before it has rules. Only changed jobs are examined, or all
    jobs when the set of counted flows has changed."""

    def __init__(self) -> None:
        self._changed = ChangedKeys[JobId]()
        self._counted: Pairs = frozenset()
        self._of_job: dict[JobId, Pairs] = {}

    def __call__(
        self,
        jobs: Mapping[JobId, Job],
        missing: Mapping[JobId, tuple[str, ...]],
        orphans: tuple[Pin, ...],
        hosts: Mapping[str, Host],
        counted: Pairs,
    ) -> Pairs:
        changed, gone = self._changed(jobs, missing)
        if counted is not self._counted and counted != self._counted:
            self._counted, self._of_job = counted, {}
            changed = list(jobs)
        for job_id in chain(gone, changed):
            self._of_job.pop(job_id, None)
        for job_id in changed:
            left = (jobs[job_id].pairs | jobs[job_id].counted) - self._counted
            if job_id in missing:
                left = frozenset((src, dst) for src, dst in left if src in hosts and dst in hosts)
            if left:
                self._of_job[job_id] = left
        unclaimed = {pin.flow.pair for pin in orphans if hosts.keys() >= set(pin.flow.pair)} - self._counted
        return frozenset[tuple[str, str]](unclaimed).union(*self._of_job.values())


class CountedLinks:
    """Derivation of the links that the packets of each counting rule may use, by job.

    Only rules of changed pins, of moved hosts, and of changed links are computed again."""

    def __init__(self) -> None:
        self._hosts: Mapping[str, Host] = {}
        self._links: Mapping[LinkId, Link] = {}
        self._usable: Mapping[LinkId, Link] = {}
        self._pins: Mapping[str, tuple[Pin, ...]] = {}
        self._uses: UsesOf = {}

    def __call__(
        self, hosts: Mapping[str, Host], links: Mapping[LinkId, Link], pins: PinSet, paths: CandidatePaths
    ) -> UsesOf:
        before, self._pins = self._pins, pins.of
        again = self._otherwise(hosts, links, paths.links)
        other = {name: was or () for name, was, _ in differing(before, pins.of)}
        fabric = Fabric(links=links, hosts=hosts)
        changes: dict[str, Uses | None] = {}
        for name in {**dict.fromkeys(again), **other}:
            of_name, pairs, uses = pins.of.get(name, ()), again.get(name, set()), dict(self._uses.get(name, NO_USES))
            if name in other:
                known = {id(pin) for pin in other[name]}
                same = [counted(pin.key) for pin in of_name if id(pin) in known]
                uses = {what: uses[what] for what in same if what}
                of_name = tuple(pin for pin in of_name if id(pin) not in known or pin.flow.pair in pairs)
            else:
                of_name = tuple(pin for pin in of_name if pin.flow.pair in pairs)
            uses |= possible_links(fabric, of_name, paths)
            changes[name] = uses or None
        self._uses = updated(self._uses, changes)
        return self._uses

    def _otherwise(
        self, hosts: Mapping[str, Host], links: Mapping[LinkId, Link], usable: Mapping[LinkId, Link]
    ) -> dict[str, set[tuple[str, str]]]:
        """Return the pairs whose packets may use other links although their rules are unchanged, by owner of the rules.

        The links change when links are added, removed, drained or undrained, or when hosts move. A pair that is not
        pinned to a path has several sets of links, and is returned after any change of links."""
        places, self._hosts = differing(self._hosts, hosts), hosts
        moved = {ip for ip, was, now in places if was and now and was.at != now.at}
        changed = {link for link, *_ in chain(differing(self._links, links), differing(self._usable, usable))}
        self._links, self._usable = links, usable
        if not moved and not changed:
            return {}
        found = (
            (name, {what[:2] for what, sets in uses.items() if len(sets) > 1 or not changed.isdisjoint(sets[0])})
            for name, uses in self._uses.items()
        )
        again = {name: pairs for name, pairs in found if pairs}
        for name, uses in self._uses.items() if moved else ():
            if pairs := {what[:2] for what in uses if not moved.isdisjoint(what[:2])}:
                again[name] = again.get(name, set()) | pairs
        return again

    def follows(self, hosts: Mapping[str, Host], links: Mapping[LinkId, Link], usable: Mapping[LinkId, Link]) -> bool:
        """Return whether hosts and links are the objects of the last call, so that only changed pins are examined."""
        return hosts is self._hosts and links is self._links and usable is self._usable


class UncountedLinks:
    """Derivation of all links that each uncounted flow may use; known results are kept while hosts and paths stay."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Uses] = {}
        self._of: tuple[object, ...] = ()

    def __call__(
        self, hosts: Mapping[str, Host], links: Mapping[LinkId, Link], uncounted: Pairs, paths: CandidatePaths
    ) -> Uses:
        if not all(a is b for a, b in zip_longest(self._of, (hosts, links, paths))):
            self._of, self._known = (hosts, links, paths), {}
        fabric, known = Fabric(links=links, hosts=hosts), self._known
        new = sorted(uncounted - known.keys())
        found = possible_links(fabric, (Pin(FlowId(*pair), 0, None) for pair in new), paths)
        self._known = {pair: known[pair] for pair in uncounted & known.keys()}
        self._known.update(zip(new, ({what: of} for what, of in found.items()), strict=True))
        return dict(chain.from_iterable(uses.items() for uses in self._known.values()))
