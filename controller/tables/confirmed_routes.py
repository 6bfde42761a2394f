"""Which pins and routes the switches hold of those that are wanted.

In: the wanted pins and rules, what switches hold. Out: ``Confirmed``. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controller.fabric.topology import Dpid, Host, Path, moved_hosts
from controller.planning.problem import FlowId, Route
from controller.shared_map import differing, updated
from controller.tables.pinned_table import Pin
from controller.tables.pins import PinSet
from controller.tables.rules import FlowKey, FlowRule, RuleSet, other_rules
from signalbox.jobs.spec import JobId

_Flows = Mapping[FlowKey, FlowRule]


NO_ROUTES: Mapping[FlowId, Route] = {}


class Confirmed(NamedTuple):
    """What switches hold of what is wanted. ``pins``: how many to a path. ``routes``: of the jobs that have any, those
    all of whose subflows are pinned so; of a job the same object while they do not change."""

    pins: int
    routes: Mapping[str, Mapping[FlowId, Route]]


class ConfirmedRoutes:
    """Derives which routes are confirmed by the switches of their sources, job by job: only where pins have changed, or
    rules that they have there."""

    def __init__(self) -> None:
        self._hosts: Mapping[str, Host] = {}
        self._pins: Mapping[str, tuple[Pin, ...]] = {}
        self._astray: Mapping[FlowId, JobId] = {}
        self._rules: dict[Dpid, tuple[_Flows, _Flows]] = {}
        self._names_of: dict[FlowKey, tuple[str, ...]] = {}
        """More than one while a job that others take a pair over from waits for its turn (``tables.pins``)."""
        self._held_of: Counter[str] = Counter()
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
        astray, self._astray = self._astray, pins.astray
        changed = [(name, was or (), now or ()) for name, was, now in differing(before, self._pins)]
        for name, was, now in changed:
            self._note_keys(name, was, now)
        both = {**astray, **self._astray}
        look_at = {name for name, *_ in changed} | self._moved(hosts)
        look_at |= {name for key in self._other_rules(wanted, installed) for name in self._names_of.get(key, ())}
        look_at |= {both[flow] for flow in astray.keys() ^ self._astray.keys()}
        found: dict[str, Mapping[FlowId, Route] | None] = {}
        for name in look_at:
            confirmed = self._confirmed(name, routes, wanted, installed)
            if confirmed != self._found.routes.get(name, NO_ROUTES):
                found[name] = confirmed or None
        self._found = Confirmed(self._held_of.total(), updated(self._found.routes, found))
        return self._found

    def _moved(self, hosts: Mapping[str, Host]) -> set[str]:
        """What has pins of hosts that have come, gone or moved to another switch."""
        before, self._hosts = self._hosts, hosts
        ips = moved_hosts(before, hosts)
        pins = self._pins.items() if ips else ()
        return {name for name, of_name in pins if any(pin.flow.src_ip in ips for pin in of_name)}

    def _note_keys(self, name: str, before: Iterable[Pin], now: Iterable[Pin]) -> None:
        for pin in before:
            if len(names := self._names_of.pop(pin.key, ())) > 1:
                self._names_of[pin.key] = tuple(other for other in names if other != name)
        for pin in now:
            self._names_of[pin.key] = (*self._names_of.get(pin.key, ()), name)

    def _other_rules(self, wanted: Mapping[Dpid, RuleSet], installed: Mapping[Dpid, RuleSet]) -> set[FlowKey]:
        """Keys of rules that are wanted otherwise, or held otherwise, than at the last call."""
        before, self._rules = (
            self._rules,
            {dpid: (rules.flows, installed[dpid].flows) for dpid, rules in wanted.items() if dpid in installed},
        )
        other: set[FlowKey] = set()
        for dpid in before.keys() | self._rules.keys():
            for old, new in zip(before.get(dpid, _NEITHER), self._rules.get(dpid, _NEITHER), strict=True):
                other.update(rule.key for rules in other_rules(old, new) for rule in rules if rule)
        return other

    def _confirmed(
        self,
        name: str,
        routes: Mapping[FlowId, Route],
        wanted: Mapping[Dpid, RuleSet],
        installed: Mapping[Dpid, RuleSet],
    ) -> Mapping[FlowId, Route]:
        """Return the routes all of whose pins are confirmed, and note how many pins are."""
        paths: defaultdict[FlowId, list[Path]] = defaultdict(list)
        missing, held = set(self._astray), 0
        for pin in self._pins.get(name, ()):
            if pin.path and pin.flow.src_ip in self._hosts:
                at = self._hosts[pin.flow.src_ip].at.dpid
                confirmed = _is_confirmed(pin.key, wanted.get(at), installed.get(at))
                held += confirmed
                for flow in pin.flows:
                    paths[flow].append(pin.path)
                    if not confirmed:
                        missing.add(flow)
        self._held_of[name] = held
        whole = ((flow, of_flow, routes.get(flow)) for flow, of_flow in paths.items() if flow not in missing)
        return {flow: route for flow, of_flow, route in whole if route and _are_of(of_flow, route)}


def _are_of(paths: list[Path], route: Route) -> bool:
    """Whether pins to these paths are all of the route's, not those of one before: pins follow routes in turns."""
    return len(paths) >= len(route) and all(path in paths for path, _ in route)


def _is_confirmed(key: FlowKey, wanted: RuleSet | None, installed: RuleSet | None) -> bool:
    """Whether the switch where the flow begins holds its pin to a path as it should be. Its cookie may still name the
    job that announced the flow before."""
    if wanted is None or installed is None:
        return False
    rule, held = wanted.flows.get(key), installed.flows.get(key)
    if rule is None or rule.goto is not None or held is None:
        return False
    return (held.actions, held.goto, held.meter) == (rule.actions, rule.goto, rule.meter)


_NEITHER: tuple[_Flows, _Flows] = {}, {}
