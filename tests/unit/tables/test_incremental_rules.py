"""Pins and rules derived job by job equal those derived from scratch."""

from __future__ import annotations

import random
from copy import copy
from dataclasses import replace

import pytest

from controller.fabric.topology import CandidatePaths, Dpid, Fabric
from controller.jobs.job import Job
from controller.jobs.messages import RegisterJob
from controller.jobs.registry import JobRegistry
from controller.planning.problem import FlowId, Problem, Route, Routes, whole
from controller.planning.snapshot import Flows, Routed, capacities, in_order
from controller.tables.flow_tables import Pin
from controller.tables.pins import FlowsByLink, Pins, lost_links
from controller.tables.pipeline import Pipeline, PipelineSettings
from controller.tables.rules import RuleSet, mods_between
from controller.tables.running_routes import ConfirmedRoutes, CountedLinks, RunningRoutes
from offline.scenarios.fabrics import leaf_spine
from signalbox.errors import Conflict
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId
from tests.support.by_id import by_id
from tests.support.fake_fabric import ring_job
from tests.support.long_cases import with_long

FABRIC = leaf_spine(4, 3, 4, 1e9, 1e9)
IPS = list(FABRIC.hosts)
SETTINGS = PipelineSettings(punt_rate_pps=50, leaf_prefix_length=24)
STEPS = 40


class Scene:
    """Random changes: jobs and routes are added, change and are removed; hosts move, cables fail, jobs share pairs."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.registry = JobRegistry(100)
        self.counted: dict[JobId, frozenset[tuple[str, str]]] = {}
        self.routes: dict[FlowId, Route] = {}
        self.fabric = FABRIC
        self.orphans: tuple[Pin, ...] = ()
        self.dscp: dict[JobId, int] = {}

    @property
    def jobs(self) -> tuple[Job, ...]:
        return self._jobs

    def step(self) -> None:
        draw = self.draw
        match draw.randrange(9):
            case 0 | 1:
                self._register(f"job{draw.randrange(6)}")
            case 2 if self.registry.jobs:
                job = draw.choice(list(self.registry.jobs.values()))
                self.registry.deregister(job.id, job.uid, 0.0)
            case 3:
                self._connect()
            case 4:
                gone = draw.sample(IPS, draw.choice([0, 0, 2]))
                self.fabric = replace(FABRIC, hosts={ip: h for ip, h in FABRIC.hosts.items() if ip not in gone})
            case 5:
                lost = draw.sample(list(FABRIC.links), draw.choice([0, 0, 2]))
                self.fabric = replace(self.fabric, links={k: v for k, v in FABRIC.links.items() if k not in lost})
            case 6:
                src, dst = draw.sample(IPS, 2)
                self.orphans = (Pin(FlowId(src, dst), 7, None),) if draw.random() < 0.5 else ()
                self.dscp = {JobId(f"job{draw.randrange(6)}"): draw.choice([10, 18]) for _ in range(2)}
            case 7:
                moving, there = draw.sample(IPS, 2)
                hosts = dict(self.fabric.hosts)
                if moving in hosts and there in hosts:
                    hosts[moving] = replace(hosts[moving], at=hosts[there].at)
                self.fabric = replace(self.fabric, hosts=hosts)
        self._jobs = tuple(
            replace(job, counted=self.counted[job.id]) if job.id in self.counted else job
            for job in self.registry.jobs.values()
        )
        self._route()

    def _register(self, name: str) -> None:
        if JobId(name) in self.registry.jobs:
            return
        shares = self.draw.random() < 0.4
        more = (
            {"reports_connections": True, "max_subflows": 2} if shares else {"max_subflows": self.draw.choice([1, 4])}
        )
        hosts = self.draw.sample(IPS, self.draw.randint(2, 6))
        try:
            self.registry.register(RegisterJob(ring_job(name, hosts, **more)), 0.0)
        except Conflict:
            return
        if self.draw.random() < 0.3:
            self.counted[JobId(name)] = frozenset([tuple(self.draw.sample(IPS, 2))])  # type: ignore[list-item]

    def _connect(self) -> None:
        sharing = [job for job in self.registry.jobs.values() if job.dividing.owner]
        if sharing:
            job = self.draw.choice(sharing)
            src, dst = self.draw.choice(sorted(job.pairs))
            number = 1000 * (1 + list(self.registry.jobs).index(job.id)) + self.draw.randrange(1000)
            ports = {number, number + 1}
            try:
                self.registry.report_connections(
                    job.id, src, frozenset(Connected(src, port, dst, 40_000 + port) for port in ports), job.uid
                )
            except Conflict:
                return

    def _route(self) -> None:
        known = [job for job in self._jobs if all(ip in self.fabric.hosts for pair in job.pairs for ip in pair)]
        flows = in_order(Flows()(by_id(*known), self.fabric.hosts))
        problem = Problem(1, capacities(FABRIC.links, FABRIC.hosts, {}), CandidatePaths(FABRIC, 64), flows)
        kept = {flow.id: self.routes[flow.id] for flow in flows if flow.id in self.routes}
        for flow in self.draw.sample(flows, min(len(flows), 4)):
            kept.pop(flow.id, None)
            if self.draw.random() < 0.8:
                kept[flow.id] = whole(self.draw.choice(problem.candidates(flow)))
        self.routes = kept


def derived(fabric: Fabric, pins: Pins, pipeline: Pipeline, scene: Scene) -> tuple[list[Pin], dict[Dpid, RuleSet]]:
    routes: Routes = scene.routes
    found = pins(fabric, by_id(*scene.jobs), routes, scene.orphans, 0, scene.dscp)
    return sorted(found, key=repr), dict(pipeline.desired(fabric, found, {}))


@pytest.mark.parametrize("seed", with_long(range(6), range(25)))
def test_what_follows_job_by_job_is_what_follows_from_nothing(seed: int) -> None:
    scene, pins, pipeline = Scene(seed), Pins(), Pipeline(SETTINGS)
    before: dict[Dpid, RuleSet] = {}
    for _ in range(STEPS):
        scene.step()
        found = derived(scene.fabric, pins, pipeline, scene)
        expected = derived(scene.fabric, Pins(), Pipeline(SETTINGS), scene)
        if scene.fabric.links is FABRIC.links:
            assert found == expected  # otherwise the cables of the way back depend on earlier states
        else:
            assert {pin.key for pin in found[0]} == {pin.key for pin in expected[0]}
        for dpid, rules in found[1].items():
            same = before.get(dpid, RuleSet())
            assert {repr(mod) for mod in mods_between(rules, same)} == {
                repr(mod) for mod in mods_between(_copied(rules), _copied(same))
            }
        before = found[1]


@pytest.mark.parametrize("seed", with_long(range(4), range(15)))
def test_links_that_packets_may_use_and_confirmed_routes_follow_job_by_job_too(seed: int) -> None:
    scene, pins, pipeline, uses, confirmed = Scene(seed), Pins(), Pipeline(SETTINGS), CountedLinks(), ConfirmedRoutes()
    installed: dict[Dpid, RuleSet] = {}
    for _ in range(STEPS):
        scene.step()
        fabric, routes = scene.fabric, dict(scene.routes)
        found = pins(fabric, by_id(*scene.jobs), routes, scene.orphans, 0, scene.dscp)
        wanted = pipeline.desired(fabric, found, {})
        drained = scene.draw.sample(list(FABRIC.links), scene.draw.choice([0, 0, 2]))
        usable = {link: of for link, of in fabric.links.items() if link not in drained} if drained else fabric.links
        paths = CandidatePaths(Fabric(links=usable), 64)
        expected = CountedLinks()(fabric.hosts, fabric.links, found, paths)
        assert dict(uses(fabric.hosts, fabric.links, found, paths)) == dict(expected)
        some = {dpid: rules for dpid, rules in wanted.items() if scene.draw.random() < 0.7}
        installed = {**installed, **some}
        now = confirmed(fabric.hosts, routes, found, wanted, installed)
        whole_anew = ConfirmedRoutes()(fabric.hosts, routes, found, wanted, installed)
        assert (now.pins, dict(now.routes)) == (whole_anew.pins, dict(whole_anew.routes))


@pytest.mark.parametrize("seed", with_long(range(3), range(10)))
def test_what_follows_from_routes_is_what_follows_from_all_of_them(seed: int) -> None:
    scene, by_link, running = Scene(seed), FlowsByLink(), RunningRoutes()
    flows, routed = Flows(), Routed()
    for _ in range(STEPS):
        scene.step()
        split = {flow: route * 2 if scene.draw.random() < 0.2 else route for flow, route in scene.routes.items()}
        routes = {
            flow: tuple(subflow._replace(share=1 / len(route)) for subflow in route) for flow, route in split.items()
        }
        running.replace(routes)
        assert running.routes == routes
        hosts = scene.fabric.hosts
        ready = [job for job in scene.jobs if hosts.keys() >= job.addresses]
        of_jobs = Flows()(by_id(*ready), hosts)
        assert routed(flows(by_id(*ready), hosts), running.routes) == Routed()(of_jobs, routes)
        used = {link for route in routes.values() for path, _ in route for link in path}
        assert lost_links(by_link(running.routes), scene.fabric.links) == used - scene.fabric.links.keys()
        assert running.shares == {
            flow.pair: (0.5, 0.5) for flow, route in routes.items() if len(route) == 2 and not flow.owner
        }


def _copied(rules: RuleSet) -> RuleSet:
    """Return equal rules, none of which is the same object."""
    return RuleSet.of(map(copy, rules.flows.values()), map(copy, rules.groups.values()), rules.meters.values())


def test_a_job_that_comes_makes_no_rule_of_another_job_anew() -> None:
    registry, pins, pipeline = JobRegistry(10), Pins(), Pipeline(SETTINGS)
    registry.register(RegisterJob(ring_job("a", IPS[:6])), 0.0)
    before = pins(FABRIC, registry.jobs, {}, ())
    rules = pipeline.desired(FABRIC, before, {})
    registry.register(RegisterJob(ring_job("b", IPS[1::4])), 0.0)
    after = pins(FABRIC, registry.jobs, {}, ())
    assert after.of["a"] is before.of["a"]
    now = pipeline.desired(FABRIC, after, {})
    for dpid in FABRIC.switches:
        assert all(now[dpid].flows[key] is rule for key, rule in rules[dpid].flows.items())
    changed = {dpid for dpid in FABRIC.switches if now[dpid] is not rules[dpid]}
    assert changed
    assert changed == {dpid for dpid in FABRIC.switches if now[dpid] != rules[dpid]}
