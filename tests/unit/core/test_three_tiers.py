"""Three tiers: a fat-tree in which packets meet a choice at the edge and another one behind it.

The checks run after every single rule change, in any order that a stage allows, and for every ECMP hash of a packet. No
packet loops, and none is lost that arrived before. In the end every packet arrives that has a path."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.config import Config
from controller.fabric.messages import SwitchConnected, SwitchLeft
from controller.fabric.topology import CandidatePaths, Dpid, Fabric, LinkId, PortRef
from controller.jobs.messages import DeregisterJob, RegisterJob
from controller.planning.messages import SetMode
from controller.planning.problem import FlowId, PathShare, Route
from controller.tables.flow_tables import Pin
from controller.tables.pins import Pins
from controller.tables.pipeline import Pipeline, PipelineSettings, narrowed
from controller.tables.rules import NARROW, RuleSet, Stage, stages_between
from offline.scenarios.fabrics import without
from offline.scenarios.topologies import fat_tree
from signalbox.jobs.spec import JobId
from signalbox.words import Mode
from tests.support.by_id import by_id
from tests.support.every_way import Watch, apart, lose_carrier, ring_flows, watch_changes
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ordered, ring_job
from tests.support.long_cases import with_long
from tests.support.three_rings import started

K = 4
EDGES = range(1, K * K // 2 + 1)
CONFIG = Config.model_validate({"fabric": {"link_bps": FABRIC_BPS, "host_link_bps": FABRIC_BPS}})
LINKS = 2 * (2 * K * (K // 2) ** 2)
RINGS = {f"job{host}": [f"10.0.{edge}.{host}" for edge in EDGES] for host in (1, 2)}
SETTINGS = PipelineSettings(punt_rate_pps=50, leaf_prefix_length=24)


# ---- the tables alone: any plan to any other, with any cables cut and plugged meanwhile


@pytest.fixture(scope="module")
def connected() -> FakeFabric:
    """Return a fabric that knows one host per edge switch, without jobs."""
    fabric = started(FakeFabric(topology=fat_tree(K, FABRIC_BPS, FABRIC_BPS)), config=CONFIG)
    fabric.send(RegisterJob(ring_job("job1", RINGS["job1"], max_subflows=2)))
    fabric.send(SetMode(Mode.ECMP))
    fabric.run(3)
    return fabric


@st.composite
def some_state(draw: st.DrawFn) -> tuple[dict[FlowId, list[int]], list[int], list[int]]:
    """Draw the candidate paths of each flow, the cables that are cut, and the switches above the edge that are off."""
    flows = draw(st.lists(st.sampled_from(ring_flows(RINGS["job1"])), max_size=4, unique=True))
    choice = {flow: draw(st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True)) for flow in flows}
    cut = draw(st.lists(st.integers(0, LINKS // 2 - 1), max_size=4, unique=True))
    off = draw(st.lists(st.sampled_from([0x101, 0x102, 0x103, 0x201, 0x202, 0x203]), max_size=2, unique=True))
    return choice, cut, off


@settings(max_examples=5)
@given(st.lists(some_state(), min_size=2, max_size=4), st.integers(0, 1000))
@example([({FlowId("10.0.4.1", "10.0.5.1"): [0]}, [27], [0x103, 0x203]), ({}, [], [])], 0).via(
    "a pin to a detour through a third pod, given up when the short way is back"
)
def test_no_packet_is_lost_or_turns_between_any_two_plans_and_fabrics(
    connected: FakeFabric,
    states: list[tuple[dict[FlowId, list[int]], list[int], list[int]]],
    seed: int,
) -> None:
    order, fabric = random.Random(seed), connected.loop.fabric
    intact = fabric
    jobs = list(connected.loop.state.jobs.jobs.values())
    pipeline, derived_pins = Pipeline(SETTINGS), Pins()
    watch = Watch(connected, RINGS["job1"])
    cables = sorted(link for link in intact.links if intact.links[link].src < intact.links[link].dst)
    for choice, cut, off in [*states, ({}, [], [])]:
        dead = {cables[n] for n in cut} | {link for link in intact.links if link.dpid in off}
        before, fabric = fabric, without(intact, dead)
        set_carriers(connected, fabric)
        watch.look()
        first_aid(connected, before, before.links.keys() - fabric.links, order, watch)
        routes = {flow: route for flow, which in choice.items() if (route := routed(fabric, flow, which))}
        pins = derived_pins(fabric, by_id(*jobs), routes, ())
        settle(connected, pipeline, fabric, pins, order, watch)
        assert {(p.src, p.dst) for p in watch.lost} == apart(fabric, RINGS["job1"])


def set_carriers(fake: FakeFabric, fabric: Fabric) -> None:
    for switch in fake.switches.values():
        for port, peer in switch.peers.items():
            switch.set_up(port, peer is None or LinkId(switch.dpid, port) in fabric.links)


def routed(fabric: Fabric, flow: FlowId, which: list[int]) -> Route:
    paths = CandidatePaths(fabric, 16).between(fabric.hosts[flow.src_ip].at.dpid, fabric.hosts[flow.dst_ip].at.dpid)
    chosen = dict.fromkeys(paths[n % len(paths)] for n in which) if paths else {}
    return tuple(PathShare(path, 1 / len(chosen)) for path in chosen)


def settle(
    fake: FakeFabric, pipeline: Pipeline, fabric: Fabric, pins: Iterable[Pin], order: random.Random, watch: Watch
) -> None:
    while True:
        installed = held(fake)
        left = stages_between(pipeline.desired(fabric, pins, installed), installed)
        if not left:
            return
        carry_out(fake, left[0], order, watch)


def first_aid(fake: FakeFabric, before: Fabric, lost: Iterable[LinkId], order: random.Random, watch: Watch) -> None:
    """Carry out the first reaction of the control loop to lost links."""
    installed = held(fake)
    fewer = narrowed(installed, before.links, lost, {host.at.dpid for host in before.hosts.values()})
    for stage in stages_between(fewer, installed):
        assert stage.name == NARROW
        carry_out(fake, stage, order, watch)


def held(fake: FakeFabric) -> dict[Dpid, RuleSet]:
    return {dpid: switch.rules() for dpid, switch in fake.switches.items()}


def carry_out(fake: FakeFabric, stage: Stage, order: random.Random, watch: Watch) -> None:
    for dpid, mod in ordered(stage, order):
        assert fake.switches[dpid].apply(mod) is None
        watch.look_after([dpid])


# ---- the whole controller: jobs are added and removed; cables, aggregation switches and cores fail and return


@pytest.fixture
def training() -> FakeFabric:
    """Return a fabric with two planned rings over all edge switches."""
    fabric = FakeFabric(topology=fat_tree(K, FABRIC_BPS, FABRIC_BPS))
    fabric.order = random.Random(1)
    started(fabric, config=CONFIG)
    for job_id, ips in RINGS.items():
        fabric.send(RegisterJob(ring_job(job_id, ips)))
    fabric.run(3)
    return fabric


def paths_taken(fabric: FakeFabric) -> dict[FlowId, list[str]]:
    taken = {}
    for ips in RINGS.values():
        for flow in ring_flows(ips):
            path = fabric.trace(*flow.pair)
            assert path is not None, f"{flow} is lost"
            taken[flow] = path
    return taken


def planned_paths(fabric: FakeFabric) -> dict[FlowId, list[str]]:
    links = fabric.loop.fabric.links
    names = {dpid: switch.name for dpid, switch in fabric.switches.items()}
    return {
        flow: [names[path[0].dpid], *(names[links[link].dst.dpid] for link in path)]
        for flow, ((path, _),) in fabric.loop.state.routes.routes.items()
        if path
    }


def test_every_flow_takes_its_planned_path_through_both_choices_and_its_answers_too(training: FakeFabric) -> None:
    status = training.status
    assert len(status.fabric.links) == LINKS
    planned = planned_paths(training)
    assert len(planned) == 2 * len(EDGES)
    taken = paths_taken(training)
    for flow, names in planned.items():
        assert taken[flow] == names
        assert training.trace(flow.dst_ip, flow.src_ip) == names[::-1]
    assert Counter(map(len, planned.values())) == {3: 8, 5: 8}, "half of the hops of a ring leave the pod"
    links = Counter(pair for names in planned.values() for pair in pairwise(names))
    assert max(links.values()) == 1, "there is a way for each flow alone"


def test_jobs_that_come_and_go_lose_nothing(training: FakeFabric) -> None:
    watch = Watch(training, RINGS["job1"])
    assert not watch.lost
    watch_changes(training, watch)
    for mode in (Mode.ECMP, Mode.PLANNED):
        training.send(SetMode(mode))
        training.run(1)
    training.send(DeregisterJob(JobId("job1")))
    training.run(1)
    training.send(RegisterJob(ring_job("job1", RINGS["job1"][::-1])))
    training.run(2)
    assert training.mods


@pytest.mark.parametrize("seed", with_long([2], range(3)))
def test_whatever_fails_and_returns_who_has_a_way_is_served_at_once(training: FakeFabric, seed: int) -> None:
    order, watch = random.Random(seed), Watch(training, RINGS["job1"])
    watch_changes(training, watch)
    cables = {
        PortRef(dpid, port) for dpid, switch in training.switches.items() for port, to in switch.peers.items() if to
    }
    dead: set[PortRef] = set()
    for _ in range(8):
        if not dead or order.random() < 0.6:
            end = order.choice(sorted(cables - dead))
            dead |= {end, training.switches[end.dpid].peers[end.port] or end}
            lose_carrier(training, *end)
            watch.look()
            training.cut(*end)
            assert {(p.src, p.dst) for p in watch.lost} <= apart(training.loop.fabric, RINGS["job1"])
        else:
            end = order.choice(sorted(dead))
            dead -= {end, training.switches[end.dpid].peers[end.port] or end}
            training.plug(*end)
        training.run(order.choice([0.1, 1, 4]))
    for end in dead:
        training.plug(*end)
    training.run(30, step=0.5)
    assert not watch.lost
    assert len(training.loop.fabric.links) == LINKS
    assert paths_taken(training).items() >= planned_paths(training).items()


@pytest.mark.parametrize(("dpid", "rules"), [(0x101, "kept"), (0x201, "gone")], ids=["aggregation", "core"])
def test_a_switch_that_leaves_and_returns_is_used_only_with_its_rules(
    training: FakeFabric, dpid: int, rules: str
) -> None:
    switch = training.switches[Dpid(dpid)]
    watch = Watch(training, RINGS["job1"])
    for port in switch.peers:
        lose_carrier(training, switch.dpid, port)
    watch.look()
    watch_changes(training, watch)
    for port in switch.peers:
        training.cut(switch.dpid, port)
    training.lose(switch.dpid)
    assert not watch.lost
    training.run(3)
    if rules == "gone":
        switch.forget_rules()
    for port, peer in switch.peers.items():
        assert peer
        switch.set_up(port, up=True)
        training.switches[peer.dpid].set_up(peer.port, up=True)
    training.send(SwitchConnected(switch.dpid, switch.name, switch.ports()))
    for port in switch.peers:
        training.plug(switch.dpid, port)
    training.run(6)
    assert not watch.lost
    assert len(training.loop.fabric.links) == LINKS
    assert switch.dpid in watch.through, "a way for ECMP again"


def test_a_switch_that_only_loses_its_controller_loses_no_packet(training: FakeFabric) -> None:
    """The switch keeps forwarding, and does not learn of changes in the meantime."""
    watch = Watch(training, RINGS["job1"])
    watch_changes(training, watch)
    training.send(SwitchLeft(Dpid(0x101)))
    training.run(3)
    training.send(DeregisterJob(JobId("job2")))
    training.run(1)
    training.connect(Dpid(0x101))
    training.run(6)
    assert len(training.loop.fabric.links) == LINKS
