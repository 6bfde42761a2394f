"""Split flows on fake switches: the paths of packets in every intermediate state, and after a restart."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid, LinkId, PortNo, PortRef
from controller.jobs.messages import DeregisterJob, RegisterJob, UpdateJob
from controller.planning.messages import Replan, SetMode, SolvePlan
from controller.planning.plan import Plan, decided
from controller.planning.planner import plan
from controller.planning.problem import FlowId, PathShare, Route, Routes
from controller.tables.flow_tables import PIN_PRIORITY, pin_key
from controller.tables.pins import Pins, parts_of
from controller.tables.pipeline import Pipeline, PipelineSettings
from controller.tables.rules import IP_TCP, IP_UDP, FlowKey, Table, stages_between
from signalbox.jobs.spec import JobId, Striping
from signalbox.jobs.subflows import port_classes
from signalbox.words import Mode
from tests.support.by_id import by_id
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job
from tests.support.fake_switch import Packet
from tests.support.three_rings import CONFIG, started

LEAVES, SPINES, HOSTS = 2, 3, 4
RING = [f"10.0.{leaf}.{host}" for host in range(1, HOSTS + 1) for leaf in (1, 2)]
FLOWS = [FlowId(src, RING[(i + 1) % len(RING)]) for i, src in enumerate(RING)]
LISTENER = 45_000


def training(**spec: object) -> FakeFabric:
    """Return a fabric with a ring of four flows out of each of two leaves, over three spines."""
    fabric = started(FakeFabric(LEAVES, SPINES, HOSTS))
    fabric.send(RegisterJob(ring_job("ring", RING, lease_s=600, **spec)))
    fabric.run(3)
    return fabric


@pytest.fixture
def fabric() -> FakeFabric:
    return training(max_subflows=4)


def routes_of(fabric: FakeFabric) -> dict[FlowId, Route]:
    (job,) = fabric.status.jobs.values()
    return {flow: route for flow, route in job.routes.items() if route}


def spine_of(path: tuple[LinkId, ...]) -> str:
    return f"spine{path[0].port}"


def data(flow: FlowId, port: int, entropy: int = 0, protocol: int = IP_TCP) -> Packet:
    dst_port = 4791 if protocol == IP_UDP else LISTENER
    return Packet(*flow.pair, entropy, protocol=protocol, src_port=port, dst_port=dst_port)


def answer(flow: FlowId, port: int, entropy: int = 0) -> Packet:
    return Packet(flow.dst_ip, flow.src_ip, entropy, src_port=LISTENER, dst_port=port)


def via(fabric: FakeFabric, packet: Packet) -> str:
    passed = fabric.follow(packet)
    assert passed, f"{packet} is lost"
    return passed[1]


def ports_in(number: int, count: int) -> Iterator[int]:
    """Yield source ports of a class, even and odd."""
    wanted = port_classes(count)[number]
    return (port & ~wanted.mask | wanted.value for port in (32_768, 32_769, 40_000, 40_007, 60_998, 60_999))


def test_four_flows_share_three_spines_evenly(fabric: FakeFabric) -> None:
    status = fabric.status
    assert status.network_efficiency == pytest.approx(3 / 4)
    (job,) = status.jobs.values()
    assert (job.state, job.pinned) == ("pinned", len(FLOWS))
    assert len(FLOWS) < job.subflows <= 2 * len(FLOWS)
    assert status.pins > 2 * len(FLOWS), "each subflow has a pin, and one for its acknowledgements"
    whole = training(max_subflows=1).status
    assert whole.network_efficiency == pytest.approx(1 / 2)


def test_every_source_port_of_a_class_takes_its_subflows_path_and_answers_come_back_on_it(fabric: FakeFabric) -> None:
    for flow, route in routes_of(fabric).items():
        for number, subflow in enumerate(route):
            for port in ports_in(number, 4) if len(route) > 1 else (32_768, 33_333):
                for entropy in range(3):
                    assert via(fabric, data(flow, port, entropy)) == spine_of(subflow.path)
                    assert via(fabric, answer(flow, port, entropy)) == spine_of(subflow.path)


def test_packets_of_no_subflow_go_to_ecmp_and_are_counted(fabric: FakeFabric) -> None:
    flow, route = next((flow, route) for flow, route in routes_of(fabric).items() if len(route) == 2)
    unused = next(ports_in(3, 4))
    assert {via(fabric, data(flow, unused, entropy)) for entropy in range(3)} == {"spine1", "spine2", "spine3"}
    assert {via(fabric, Packet(*flow.pair, entropy, protocol=1)) for entropy in range(3)} == {
        "spine1",
        "spine2",
        "spine3",
    }
    leaf = fabric.switches[fabric.hosts[flow.src_ip].dpid]
    assert leaf.flows[pin_key(flow)].goto == Table.DEFAULT
    assert {key.priority for key in keys_of(fabric, flow)} == {PIN_PRIORITY, PIN_PRIORITY + 2}
    assert len(keys_of(fabric, flow)) == 1 + len(route)


def keys_of(fabric: FakeFabric, flow: FlowId) -> list[FlowKey]:
    leaf = fabric.switches[fabric.hosts[flow.src_ip].dpid]
    ends = [(key, key.match.ip_src, key.match.ip_dst) for key in leaf.flows]
    return [key for key, src, dst in ends if src and dst and (src.address, dst.address) == flow.pair]


def test_roce_is_told_apart_by_the_source_port_of_udp_to_its_port() -> None:
    fabric = training(max_subflows=2, transport="roce_v2")
    flow, route = next((flow, route) for flow, route in routes_of(fabric).items() if len(route) == 2)
    for number, subflow in enumerate(route):
        for port in ports_in(number, 2):
            assert via(fabric, data(flow, port, 1, IP_UDP)) == spine_of(subflow.path)
            back = Packet(flow.dst_ip, flow.src_ip, 1, protocol=IP_UDP, src_port=port, dst_port=4791)
            assert via(fabric, back) == spine_of(subflow.path)
    port = next(ports_in(0, 2))
    assert len({via(fabric, data(flow, port, entropy)) for entropy in range(3)}) == 3, "TCP is none of it"


def test_subflows_are_told_apart_at_spines_too_where_these_have_a_choice() -> None:
    """Two cables lead from each leaf to the only spine: three flows share two links each way."""
    fabric = FakeFabric(leaves=2, spines=2, hosts_per_leaf=3)
    spine, _ = fabric.switches[Dpid(257)], fabric.switches.pop(Dpid(258))
    for leaf in (Dpid(1), Dpid(2)):
        port = PortNo(leaf + 2)
        spine.peers[port] = PortRef(leaf, PortNo(2))
        spine.up[port] = True
        fabric.switches[leaf].peers[PortNo(2)] = PortRef(spine.dpid, port)
    started(fabric)
    ring = [f"10.0.{leaf}.{host}" for host in range(1, 4) for leaf in (1, 2)]
    fabric.send(RegisterJob(ring_job("ring", ring, max_subflows=2)))
    fabric.run(3)
    assert fabric.status.network_efficiency == pytest.approx(2 / 3)
    for flow, route in routes_of(fabric).items():
        for number, subflow in enumerate(route):
            packet = data(flow, next(ports_in(number, 2)) if len(route) > 1 else 40_000, entropy=number)
            at = fabric.hosts[flow.src_ip]
            up = fabric.switches[at.dpid].forward(at.port, packet)
            entered = fabric.switches[at.dpid].peers[up] if up else None
            assert entered
            assert (up, spine.forward(entered.port, packet)) == tuple(link.port for link in subflow.path)
    fabric.forget_mods()
    before = routes_of(fabric)
    fabric.start(CONFIG)
    fabric.run(30)
    assert (fabric.route_mods, routes_of(fabric)) == ([], before)


def test_a_restart_adopts_split_routes_with_their_shares_and_sends_nothing(fabric: FakeFabric) -> None:
    before = routes_of(fabric)
    assert any(len({share for _, share in route}) > 1 for route in before.values()), "shares are not all equal"
    fabric.forget_mods()
    fabric.start(CONFIG)
    fabric.run(30)
    assert fabric.route_mods == []
    assert routes_of(fabric) == before
    assert not fabric.status.adopting


def test_a_pair_that_passes_to_a_job_that_does_not_split_is_whole_again(fabric: FakeFabric) -> None:
    fabric.after_each_mod = lambda: all_arrive(fabric)
    fabric.send(DeregisterJob(JobId("ring")))
    fabric.send(RegisterJob(ring_job("heir", RING)))
    fabric.run(3)
    for flow in FLOWS:
        assert keys_of(fabric, flow) == [pin_key(flow)]
    assert fabric.status.network_efficiency == pytest.approx(1 / 2)


def all_arrive(fabric: FakeFabric) -> None:
    for flow in FLOWS:
        for port in range(32_768, 32_776, 2):
            assert fabric.follow(data(flow, port)) is not None
            assert fabric.follow(answer(flow, port)) is not None


def test_new_shares_are_told_and_saved_and_change_no_rule(fabric: FakeFabric) -> None:
    flow, (first, second) = next((flow, route) for flow, route in routes_of(fabric).items() if len(route) == 2)
    generation = fabric.status.jobs[JobId("ring")].routes_generation
    (command,) = fabric.loop.handle([Replan()], fabric.now)
    assert isinstance(command, SolvePlan)
    answer = plan(command.snapshot.problem, command.limits)
    assert isinstance(answer, Plan)
    shifted = (PathShare(first.path, first.share / 2), PathShare(second.path, 1 - first.share / 2))
    better = {job: slowdown / 2 for job, slowdown in answer.job_slowdown.items()}
    fabric.forget_mods()
    found = replace(answer, routes={**answer.routes, flow: shifted}, job_slowdown=better)
    fabric.send(decided(command.snapshot.problem, found, command.min_gain))
    fabric.run(0.1)
    job = fabric.status.jobs[JobId("ring")]
    assert (job.routes[flow], fabric.mods) == (shifted, [])
    assert job.routes_generation > generation
    assert fabric.saved.shares[flow.pair] == (shifted[0].share, shifted[1].share)


def test_a_refused_class_leaves_its_flow_unconfirmed_and_its_packets_arrive(fabric: FakeFabric) -> None:
    flow = next(flow for flow, route in routes_of(fabric).items() if len(route) == 2)
    fabric.send(SetMode(Mode.ECMP))
    fabric.run(1)
    second = parts_of(fabric.loop.state.jobs.jobs[JobId("ring")], flow.pair)[1][0]
    fabric.switches[fabric.hosts[flow.src_ip].dpid].refuses = {pin_key(flow, second)}
    fabric.send(SetMode(Mode.PLANNED))
    fabric.run(2)
    assert flow not in routes_of(fabric)
    all_arrive(fabric)


def test_the_counters_of_a_split_flow_are_the_sum_of_its_rules_and_none_of_it_is_background(fabric: FakeFabric) -> None:
    routes = routes_of(fabric)
    parts = [part for (part,) in parts_of(fabric.loop.state.jobs.jobs[JobId("ring")], FLOWS[0].pair)]
    rate = 0.75 * FABRIC_BPS / 8  # as fast as the job can send: its slowdown is 4/3
    ports: dict[PortRef, float] = {}
    rules: dict[FlowKey, float] = {}
    received: dict[PortRef, float] = {}
    for _ in range(40):
        fabric.run(1, step=0.5)
        for flow, route in routes.items():
            whole = len(route) == 1
            for subflow, part in zip(route, parts, strict=False):
                sent = rate * subflow.share
                key = pin_key(flow, None if whole else part)
                rules[key] = rules.get(key, 0) + sent
                for link in subflow.path:
                    ports[link.at] = ports.get(link.at, 0) + sent
            ports[fabric.hosts[flow.dst_ip]] = ports.get(fabric.hosts[flow.dst_ip], 0) + rate
            received[fabric.hosts[flow.src_ip]] = received.get(fabric.hosts[flow.src_ip], 0) + rate
        sent_bytes, received_bytes = ({at: int(n) for at, n in totals.items()} for totals in (ports, received))
        fabric.count_rules(sent_bytes, {key: int(n) for key, n in rules.items()}, received_bytes)
    status = fabric.status
    assert {link: load.background_bps for link, load in status.links.items() if load.background_bps} == {}
    busiest = max(load.rate_bps or 0.0 for link, load in status.links.items() if link in status.fabric.links)
    assert busiest == pytest.approx(FABRIC_BPS, rel=0.02)
    assert routes_of(fabric) == routes


# ---- any change between any routes, rule by rule


def paths(flow: FlowId) -> list[tuple[LinkId, ...]]:
    src, dst = int(flow.src_ip.split(".")[2]), int(flow.dst_ip.split(".")[2])
    return [
        (LinkId(Dpid(src), PortNo(spine)), LinkId(Dpid(256 + spine), PortNo(dst))) for spine in range(1, SPINES + 1)
    ]


@st.composite
def some_routes(draw: st.DrawFn) -> dict[FlowId, Route]:
    routes = {}
    for flow in FLOWS[:3]:
        chosen = draw(st.lists(st.sampled_from(paths(flow)), max_size=SPINES, unique=True))
        if chosen:
            routes[flow] = tuple(PathShare(path, 1 / len(chosen)) for path in chosen)
    return routes


@pytest.fixture(scope="module")
def connected() -> FakeFabric:
    return training(max_subflows=3)


@settings(max_examples=12, deadline=None)
@given(st.lists(some_routes(), min_size=2, max_size=4), st.integers(0, 1000))
def test_no_packet_is_lost_between_any_two_sets_of_routes(
    connected: FakeFabric, changes: list[Routes], seed: int
) -> None:
    """Switches carry out a stage in any order; each switch carries out its own changes in the order of the stage."""
    order, derived_pins = random.Random(seed), Pins()
    jobs = list(connected.loop.state.jobs.jobs.values())
    pipeline = Pipeline(PipelineSettings(punt_rate_pps=50, leaf_prefix_length=24))
    for routes in changes:
        pins = derived_pins(connected.loop.fabric, by_id(*jobs), routes, ())
        while True:
            installed = {dpid: switch.rules() for dpid, switch in connected.switches.items()}
            left = stages_between(pipeline.desired(connected.loop.fabric, pins, installed), installed)
            if not left:
                break
            for dpid in order.sample(sorted(left[0].mods), len(left[0].mods)):
                for mod in left[0].mods[dpid]:
                    assert connected.switches[dpid].apply(mod) is None
                    for flow in FLOWS[:3]:
                        for port in (32_768, 32_770, 32_772, 32_774):
                            assert connected.follow(data(flow, port)) is not None
                            assert connected.follow(answer(flow, port)) is not None
        for flow, route in routes.items():
            for number, subflow in enumerate(route):
                port = 32_768 | 2 * number
                assert via(connected, data(flow, port)) == spine_of(subflow.path)


def test_shares_survive_an_adoption_in_mid_life(fabric: FakeFabric) -> None:
    """No rule holds the shares, and the state of the last process was lost long ago."""
    routes, jobs = fabric.loop.state.routes, list(fabric.loop.state.jobs.jobs.values())
    routes.drop_orphans()
    uneven = {
        flow: (
            PathShare(route[0].path, 0.9),
            *(PathShare(subflow.path, 0.1 / (len(route) - 1)) for subflow in route[1:]),
        )
        for flow, route in routes.routes.items()
        if len(route) > 1
    }
    assert uneven
    routes.routes = {**routes.routes, **uneven}
    before = dict(routes.routes)
    assert routes.adopt(fabric.loop.fabric, fabric.loop.state.sync.installed, jobs) == {JobId("ring")}
    assert routes.routes == before
    late = dict(fabric.loop.state.sync.installed)
    del late[Dpid(257)]
    routes.adopt(fabric.loop.fabric, late, jobs)
    assert routes.routes == before, "subflows whose switch is late are not gone"


# ---- port classes over which senders stripe equal bytes: each is a subflow with a path of its own


def spines(fabric: FakeFabric, flow: FlowId, port: int) -> set[str]:
    """Return the spines that data from this port and its answers cross, over several hashes."""
    return {via(fabric, packet(flow, port, entropy)) for packet in (data, answer) for entropy in range(4)}


def assert_each_class_takes_its_path(fabric: FakeFabric, count: int) -> None:
    routes = routes_of(fabric)
    assert routes.keys() == set(FLOWS)
    for flow, route in routes.items():
        assert [share for _, share in route] == [pytest.approx(1 / count)] * count
        for number, (path, _) in enumerate(route):
            for port in ports_in(number, count):
                assert spines(fabric, flow, port) == {spine_of(path)}


@pytest.mark.parametrize(("count", "striping"), [(2, "even"), (3, "common_queue"), (8, "even")])
def test_every_class_is_an_equal_subflow_on_one_path(count: int, striping: str) -> None:
    """Four flows have n subflows each, so one of the three links has at least 4n/3 subflows, rounded up."""
    fabric = training(max_subflows=count, striping=striping)
    assert fabric.job("ring").slowdown == pytest.approx(ceil(HOSTS * count / SPINES) / count)
    assert_each_class_takes_its_path(fabric, count)


def test_subflows_that_share_a_path_have_one_rule_which_ports_of_no_class_take_too() -> None:
    """Three flows of a leaf are whole in each direction.

    Each subflow of the fourth flow has its own path and rule. A rule of lower priority counts the flow's other
    packets."""
    fabric = training(max_subflows=3, striping="even")
    paths = {flow: {path for path, _ in route} for flow, route in routes_of(fabric).items()}
    for flow, of_flow in paths.items():
        assert len(of_flow) in (1, 3)
        assert (len(spines(fabric, flow, 32_768 | 6)) == 1) == (len(of_flow) == 1)
        assert len(keys_of(fabric, flow)) == (1 if len(of_flow) == 1 else 4)
    assert [len(of_flow) for of_flow in paths.values()].count(1) == 6


def test_a_subflow_on_another_path_than_the_others_has_a_rule_besides_theirs() -> None:
    """Four flows of 8 subflows share three links.

    The fullest link carries at least 11 subflows: all of one flow and 3 of another flow."""
    fabric = training(max_subflows=8, striping="even")
    for flow, route in routes_of(fabric).items():
        times = Counter(path for path, _ in route)
        assert max(times.values()) > 1
        assert len(keys_of(fabric, flow)) == 1 + len(route) - max(times.values())
    assert any(len(set(route)) > 1 for route in routes_of(fabric).values())


def test_subflows_of_a_lost_link_get_other_paths_and_stay_equal() -> None:
    fabric = training(max_subflows=4, striping="even")
    fabric.cut(Dpid(1), PortNo(1))
    assert (fabric.status.repairs_total, fabric.job("ring").state) == (1, "pinned"), "at once"
    assert not {LinkId(Dpid(1), PortNo(1))} & {path[0] for route in routes_of(fabric).values() for path, _ in route}
    fabric.run(10)
    assert fabric.job("ring").slowdown == pytest.approx(HOSTS / (SPINES - 1))
    assert_each_class_takes_its_path(fabric, 4)


def test_another_striping_is_planned_anew_and_loses_no_packet() -> None:
    """The slowdown with four subflows is 4/3 for shares that a sender can follow, and 3/2 for equal shares."""
    fabric = training(max_subflows=4, striping="paced")
    spec = fabric.job("ring").spec
    assert fabric.job("ring").slowdown == pytest.approx(4 / 3)
    fabric.after_each_mod = lambda: all_arrive(fabric)
    fabric.send(UpdateJob(spec.model_copy(update={"striping": Striping.EVEN})))
    fabric.run(5)
    assert fabric.job("ring").slowdown == pytest.approx(3 / 2)
    assert_each_class_takes_its_path(fabric, 4)
    fabric.send(UpdateJob(spec))
    fabric.run(5)
    assert fabric.job("ring").slowdown == pytest.approx(4 / 3)


@pytest.mark.parametrize(("striping", "predicted"), [("paced", 3 / 4), ("by_share", None), ("even", 2 / 3)])
def test_a_job_is_told_an_efficiency_only_where_its_sender_reaches_it(striping: str, predicted: float | None) -> None:
    job = training(max_subflows=4, striping=striping).job("ring")
    assert job.efficiency_predicted == (predicted and pytest.approx(predicted, rel=1e-3))
    assert bool(job.prediction_withheld) == (not predicted)
    assert not training(max_subflows=1, striping=striping).job("ring").prediction_withheld, (
        "whole flows are not divided"
    )


def test_a_job_beside_one_with_more_connections_per_flow_is_told_no_efficiency() -> None:
    """Two jobs share one spine, and four of five connections on a link belong to the second job."""
    fabric = started(FakeFabric(leaves=3, spines=1, hosts_per_leaf=2))
    for job_id, host, subflows in (("one", 1, 1), ("more", 2, 4)):
        ring = [f"10.0.{leaf}.{host}" for leaf in (1, 2, 3)]
        fabric.send(RegisterJob(ring_job(job_id, ring, lease_s=600, max_subflows=subflows, striping="even")))
    fabric.run(3)
    assert fabric.job("one").prediction_withheld
    assert fabric.job("more").efficiency_predicted == pytest.approx(1 / 2, rel=1e-3)
    fabric.send(DeregisterJob(JobId("more")))
    fabric.run(3)
    assert fabric.job("one").efficiency_predicted == pytest.approx(1.0, rel=1e-3)
