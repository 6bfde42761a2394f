"""Confirmed routes: the routes that the switches hold, among the desired ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from controller.fabric.topology import Dpid, Host, LinkId, PortNo, PortRef
from controller.planning.problem import FlowId, Subflow, whole
from controller.tables.flow_tables import Part, Pin, counting_rule
from controller.tables.pins import PinSet
from controller.tables.rules import FlowKey, FlowRule, RuleSet, Table, ToGroup
from controller.tables.running_routes import ConfirmedRoutes
from signalbox.jobs.spec import Transport
from signalbox.jobs.subflows import PortClass
from tests.support.long_cases import with_long

FLOW = FlowId("10.0.1.1", "10.0.2.1")
FIRST, SECOND = (LinkId(Dpid(1), PortNo(1)),), (LinkId(Dpid(1), PortNo(2)),)
SPLIT = (Subflow(FIRST, 0.5), Subflow(SECOND, 0.5))
HOSTS = {FLOW.src_ip: Host(FLOW.src_ip, None, PortRef(Dpid(1), PortNo(9)), 1e9)}
PARTS = [Part(Transport.TCP, ports) for ports in (PortClass(0, 2), PortClass(2, 2))]
PINS = PinSet({"job": tuple(Pin(FLOW, 7, path, part) for (path, _), part in zip(SPLIT, PARTS, strict=True))})


def rules_of(*pins: Pin) -> dict[Dpid, RuleSet]:
    return {Dpid(1): RuleSet.of(FlowRule(pin.key, 0, (ToGroup(3),)) for pin in pins)}


def test_a_route_is_confirmed_when_all_of_its_subflows_are() -> None:
    wanted, derive = rules_of(*PINS), ConfirmedRoutes()
    for installed, count in ((rules_of(), 0), (rules_of(*list(PINS)[:1]), 1), (rules_of(*PINS), 2), (rules_of(), 0)):
        found = derive(HOSTS, {FLOW: SPLIT}, PINS, wanted, installed)
        assert (found.pins, found.routes) == (count, {"job": {FLOW: SPLIT}} if count == 2 else {})


def test_a_route_is_confirmed_by_the_rule_of_the_job_that_announced_its_flow_before() -> None:
    """Jobs that exchange hosts change the cookies of rules, not the paths of packets."""
    pins = PinSet({"job": (Pin(FLOW, 7, FIRST),)})
    wanted = {Dpid(1): RuleSet.of([FlowRule(pin.key, 7, (ToGroup(3),)) for pin in pins])}
    of_other = {Dpid(1): RuleSet.of([FlowRule(pin.key, 8, (ToGroup(3),)) for pin in pins])}
    elsewhere = {Dpid(1): RuleSet.of([FlowRule(pin.key, 8, (ToGroup(4),)) for pin in pins])}
    derive = ConfirmedRoutes()
    for installed, found in (
        (of_other, {"job": {FLOW: whole(FIRST)}}),
        (elsewhere, {}),
        (wanted, {"job": {FLOW: whole(FIRST)}}),
    ):
        assert derive(HOSTS, {FLOW: whole(FIRST)}, pins, wanted, installed).routes == found


def test_a_new_route_is_not_confirmed_by_pins_of_the_one_before() -> None:
    """The new route waits for its turn to be installed, and an audit reads the rules."""
    pins = PinSet({"job": (Pin(FLOW, 7, FIRST),)})
    wanted, derive = rules_of(*pins), ConfirmedRoutes()
    assert derive(HOSTS, {FLOW: whole(FIRST)}, pins, wanted, rules_of(*pins)).routes == {"job": {FLOW: whole(FIRST)}}
    assert derive(HOSTS, {FLOW: whole(SECOND)}, pins, wanted, rules_of(*pins)).routes == {}
    counting = {Dpid(1): RuleSet.of(counting_rule(pin, 2) for pin in pins)}
    assert ConfirmedRoutes()(HOSTS, {FLOW: whole(FIRST)}, pins, counting, counting) == (0, {}), "it could not stand"


@pytest.mark.parametrize("seed", with_long(range(6), range(20)))
def test_what_is_confirmed_is_the_same_as_if_all_were_looked_at(seed: int) -> None:
    """Pins, desired rules and installed rules change at random.

    Two jobs have the same pin for a while, when one of them lost the pair and waits for its turn."""
    draw, derive = random.Random(seed), ConfirmedRoutes()
    hosts = {ip: Host(ip, None, PortRef(Dpid(n % 2 + 1), PortNo(9)), 1e9) for n, ip in enumerate("abcd")}
    kept: dict[str, tuple[Pin, ...]] = {}
    rules: dict[Dpid, RuleSet] = {}
    for _ in range(60):
        if draw.random() < 0.5:
            name = draw.choice("abc")
            src = draw.choice([name, name, *"abc"])
            flows = [FlowId(src, dst, name) for dst in "abcd" if dst != src and draw.random() < 0.5]
            kept = {**kept, name: tuple(Pin(flow, 7, draw.choice([FIRST, SECOND, None])) for flow in flows)}
            if draw.random() < 0.2:
                del kept[name]
        pins = PinSet(kept)
        routes = {pin.flow: whole(pin.path) for pin in pins if pin.path}
        keys = [pin.key for pin in pins]
        here, there = (
            {dpid: RuleSet.of(_drawn(draw, keys, rules.get(dpid))) for dpid in (Dpid(1), Dpid(2))} for _ in range(2)
        )
        rules = here if draw.random() < 0.7 else there
        installed = draw.choice([rules, there, {Dpid(1): here[Dpid(1)]}])
        assert derive(hosts, routes, pins, rules, installed) == ConfirmedRoutes()(hosts, routes, pins, rules, installed)


def _drawn(draw: random.Random, keys: list[FlowKey], before: RuleSet | None) -> Iterator[FlowRule]:
    """Yield random rules for the keys; some keys keep their former rule, some have none."""
    for key in keys:
        if before and key in before.flows and draw.random() < 0.6:
            yield before.flows[key]
        elif draw.random() < 0.8:
            yield FlowRule(key, 0, (ToGroup(draw.randint(1, 2)),), draw.choice([None, None, Table.DEFAULT]))
