"""Confirmed pins and routes: wanted pins and routes that are installed on the switches.

In: the wanted pins and rules, and the rules on switches. Out: ``Confirmed``. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from controller.fabric.topology import Dpid, Host, Path, moved_hosts
from controller.planning.problem import FlowId, Route
from controller.shared_map import differing, updated
from controller.tables.pinned_table import Pin
from controller.tables.pins import PinSet
from controller.tables.rules import FlowKey, FlowRule, RuleSet, Table, other_rules
from signalbox.jobs.spec import JobId

_Flows = Mapping[FlowKey, FlowRule]


NO_ROUTES: Mapping[FlowId, Route] = {}


class Confirmed(NamedTuple):
    """Confirmed part of the wanted pins and routes."""

    pins: int
    """Number of confirmed pins to a path."""
    routes: Mapping[str, Mapping[FlowId, Route]]
    """Routes whose subflows are all pinned as wanted, by job; a job keeps the same object while its routes stay."""


class ConfirmedRoutes:
    """Derivation of the routes whose pins are on the switches of their sources.

    Only jobs with changed pins, or with changed rules for their pins, are examined."""

    def __init__(self) -> None:
        self._hosts: Mapping[str, Host] = {}
        self._pins: Mapping[str, tuple[Pin, ...]] = {}
        self._stale: Mapping[FlowId, JobId] = {}
        self._rules: dict[Dpid, tuple[_Flows, _Flows]] = {}
        self._names_of: dict[FlowKey, tuple[str, ...]] = {}
        """Jobs that have a pin with this key.

        There are several while a job that lost a pair to another job waits for its turn (``tables.pins``)."""
        self._known: dict[str, _Pinned] = {}
        self._held = 0
        self._found = Confirmed(0, {})

    def __call__(
        self,
        hosts: Mapping[str, Host],
        routes: Mapping[FlowId, Route],
        pins: PinSet,
        wanted: Mapping[Dpid, RuleSet],
        installed: Mapping[Dpid, RuleSet],
    ) -> Confirmed:
        before, self._pins = self._pins, pins.of
        stale, self._stale = self._stale, pins.stale
        names = {name for name, *_ in differing(before, self._pins)} | self._moved(hosts)
        for name in names:
            self._note_pins(name)
        look_at = {name: self._known[name].pins.keys() for name in names if name in self._known}
        others: dict[str, set[FlowKey]] = {}
        for key in self._other_rules(wanted, installed):
            for name in self._names_of.get(key, ()):
                if name not in look_at:
                    others.setdefault(name, set()).add(key)
        both = {**stale, **self._stale}
        for name in {both[flow] for flow in stale.keys() ^ self._stale.keys()}:
            if name in self._known and name not in look_at:
                others.setdefault(name, set())
        found: dict[str, Mapping[FlowId, Route] | None] = dict.fromkeys(names - self._known.keys())
        for name, keys in (look_at | others).items():
            self._held -= self._known[name].held
            confirmed = self._confirmed(self._known[name], keys, routes, wanted, installed)
            self._held += self._known[name].held
            if confirmed != self._found.routes.get(name, NO_ROUTES):
                found[name] = confirmed or None
        self._found = Confirmed(self._held, updated(self._found.routes, found))
        return self._found

    def _moved(self, hosts: Mapping[str, Host]) -> set[str]:
        """Return the jobs with pins of hosts that appeared, vanished or moved to another switch."""
        before, self._hosts = self._hosts, hosts
        ips = moved_hosts(before, hosts)
        return (
            {name for name, pins in self._pins.items() if any(pin.flow.src_ip in ips for pin in pins)} if ips else set()
        )

    def _note_pins(self, name: str) -> None:
        if before := self._known.pop(name, None):
            self._held -= before.held
        for key in before.pins if before else ():
            if len(names := self._names_of.pop(key)) > 1:
                self._names_of[key] = tuple(other for other in names if other != name)
        if name in self._pins:
            pins = {pin.key: pin for pin in self._pins[name] if pin.path and pin.flow.src_ip in self._hosts}
            known = self._known[name] = _Pinned(pins)
            self._held += known.held
            shared = {key: (*self._names_of[key], name) for key in pins.keys() & self._names_of.keys()}
            self._names_of.update(dict.fromkeys(pins, (name,)) | shared)

    def _other_rules(self, wanted: Mapping[Dpid, RuleSet], installed: Mapping[Dpid, RuleSet]) -> set[FlowKey]:
        """Return the keys of wanted or installed pins that have changed since the last call."""
        before, self._rules = (
            self._rules,
            {dpid: (rules.flows, installed[dpid].flows) for dpid, rules in wanted.items() if dpid in installed},
        )
        other: set[FlowKey] = set()
        for dpid in before.keys() | self._rules.keys():
            for old, new in zip(before.get(dpid, _NEITHER), self._rules.get(dpid, _NEITHER), strict=True):
                rules = chain.from_iterable(other_rules(old, new))
                other.update(rule.key for rule in rules if rule and rule.key.table == Table.PINNED)
        return other

    def _confirmed(
        self,
        known: _Pinned,
        look_at: Iterable[FlowKey],
        routes: Mapping[FlowId, Route],
        wanted: Mapping[Dpid, RuleSet],
        installed: Mapping[Dpid, RuleSet],
    ) -> Mapping[FlowId, Route]:
        """Return the routes whose pins are all confirmed. ``look_at``: keys of the pins that may have changed."""
        for key in look_at:
            at = self._hosts[known.pins[key].flow.src_ip].at.dpid
            known.note(key, _is_confirmed(key, wanted.get(at), installed.get(at)))
        missing = {flow for key in known.missing for flow in known.pins[key].flows}
        missing |= self._stale.keys() & known.paths.keys()
        whole = ((flow, paths, routes.get(flow)) for flow, paths in known.paths.items() if flow not in missing)
        return {flow: route for flow, paths, route in whole if route and _are_of(paths, route)}


class _Pinned:
    """Pins of one job that lead over a path, each of them confirmed or missing. ``pins``: pins by key."""

    def __init__(self, pins: Mapping[FlowKey, Pin]) -> None:
        self.pins = pins
        self.paths: dict[FlowId, list[Path | None]] = {}
        """Paths of each flow, one for each pin."""
        for pin in pins.values():
            for flow in pin.flows:
                self.paths.setdefault(flow, []).append(pin.path)
        self.missing: set[FlowKey] = set()
        """Keys of the pins that are not confirmed."""

    def note(self, key: FlowKey, confirmed: bool) -> None:
        """Record whether the pin with this key is confirmed."""
        if confirmed:
            self.missing.discard(key)
        else:
            self.missing.add(key)

    @property
    def held(self) -> int:
        """Number of confirmed pins."""
        return len(self.pins) - len(self.missing)


def _are_of(paths: list[Path | None], route: Route) -> bool:
    """Return whether ``paths`` has every path of the route; otherwise the pins belong to an earlier route of the flow.

    The pins of a large plan are derived in portions, so a flow may keep the pins of its earlier route for a while."""
    return len(paths) >= len(route) and all(path in paths for path, _ in route)


def _is_confirmed(key: FlowKey, wanted: RuleSet | None, installed: RuleSet | None) -> bool:
    """Return whether the switch holds the wanted pin with this key, and the pin leads over a path.

    ``wanted``, ``installed``: rules of the switch of the flow's source. The cookie is ignored: it may still name the
    job that announced the flow before."""
    if wanted is None or installed is None:
        return False
    rule, held = wanted.flows.get(key), installed.flows.get(key)
    if rule is None or rule.goto is not None or held is None:
        return False
    return (held.actions, held.goto, held.meter) == (rule.actions, rule.goto, rule.meter)


_NEITHER: tuple[_Flows, _Flows] = {}, {}
