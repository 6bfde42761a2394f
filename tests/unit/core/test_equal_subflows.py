"""Jobs with port classes whose senders stripe equal bytes over the classes, from the announcement to packets.

Each class is a subflow with a path of its own, whatever the number of classes."""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest

from controller.api.convert_plan import routes_message
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import DeregisterJob, RegisterJob, UpdateJob
from controller.planning.problem import FlowId, Route
from controller.status import JobStatus
from controller.tables.pinned_table import read_pin
from signalbox.jobs.spec import JobId, Striping
from signalbox.jobs.subflows import port_classes
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.fake_switch import Packet
from tests.support.three_rings import CONFIG

SPINES, HOSTS = 3, 4
RING = [f"10.0.{leaf}.{host}" for host in range(1, HOSTS + 1) for leaf in (1, 2)]
JOB = JobId("ring")
LISTENER = 45_000


def started(max_subflows: int, striping: str) -> FakeFabric:
    """Return a fabric with a job of four flows out of each of two leaves, over three spines."""
    fabric = FakeFabric(2, SPINES, HOSTS)
    fabric.start(CONFIG)
    fabric.run(3)
    fabric.send(RegisterJob(ring_job(JOB, RING, lease_s=600, max_subflows=max_subflows, striping=striping)))
    fabric.run(3)
    return fabric


def routes_of(fabric: FakeFabric) -> dict[FlowId, Route]:
    found = {flow: route for flow, route in fabric.status.jobs[JOB].routes.items() if route}
    assert len(found) == len(RING), "every flow has a route"
    return found


def rules_of(fabric: FakeFabric, flow: FlowId) -> int:
    """Return the number of rules for packets of the flow at the switches of both ends, without the general rules."""
    return sum(
        (pin := read_pin(rule)) is not None and pin.flow.pair == flow.pair
        for leaf in (Dpid(1), Dpid(2))
        for rule in fabric.switches[leaf].rules().flows.values()
    )


def spines(fabric: FakeFabric, flow: FlowId, port: int) -> set[str]:
    """Return the spines that data from this port and its answers cross, over several hashes."""
    packets = [Packet(*flow.pair, entropy, src_port=port, dst_port=LISTENER) for entropy in range(4)]
    packets += [Packet(*flow.back.pair, entropy, src_port=LISTENER, dst_port=port) for entropy in range(4)]
    passed = [fabric.follow(packet) for packet in packets]
    assert all(passed), "a packet is lost"
    return {path[1] for path in passed if path}


def assert_each_class_takes_its_path(fabric: FakeFabric, count: int) -> None:
    for flow, route in routes_of(fabric).items():
        assert [share for _, share in route] == [pytest.approx(1 / count)] * count
        for (path, _), ports in zip(route, port_classes(count), strict=True):
            for port in (32_768, 32_769, 60_992):
                assert spines(fabric, flow, port & ~ports.mask | ports.value) == {f"spine{path[0].port}"}


@pytest.mark.parametrize("striping", ["even", "common_queue"])
@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_every_class_is_an_equal_subflow_on_one_path(count: int, striping: str) -> None:
    """Four flows have n subflows each, so one of the three links has at least 4n/3 subflows, rounded up."""
    fabric = started(count, striping)
    assert fabric.status.jobs[JOB].slowdown == pytest.approx(ceil(HOSTS * count / SPINES) / count)
    assert_each_class_takes_its_path(fabric, count)


def test_watchers_are_told_equal_shares_and_every_class() -> None:
    fabric = started(3, "even")
    for route in routes_message(fabric.status.jobs[JOB], fabric.status.fabric).routes:
        assert [subflow.share for subflow in route.subflows] == pytest.approx([1 / 3] * 3)
        assert [(subflow.port_value, subflow.port_mask) for subflow in route.subflows] == [(0, 6), (2, 6), (4, 6)]


def test_subflows_that_share_a_path_have_one_rule_which_ports_of_no_class_take_too() -> None:
    """Three flows of a leaf are whole in each direction.

    Each subflow of the fourth flow has a path and a rule, above a rule that counts the flow's remaining packets."""
    fabric = started(3, "even")
    paths = {flow: {path for path, _ in route} for flow, route in routes_of(fabric).items()}
    for flow, of_flow in paths.items():
        assert len(of_flow) in (1, 3)
        assert (len(spines(fabric, flow, 32_768 | 6)) == 1) == (len(of_flow) == 1)
        assert rules_of(fabric, flow) == (1 if len(of_flow) == 1 else 4)
    assert [len(of_flow) for of_flow in paths.values()].count(1) == 6


def test_a_subflow_on_another_path_than_the_others_has_a_rule_besides_theirs() -> None:
    """Four flows of 8 subflows share three links.

    The fullest link carries at least 11 subflows: all of one flow and 3 of another flow."""
    fabric = started(8, "even")
    for flow, route in routes_of(fabric).items():
        times = Counter(path for path, _ in route)
        assert max(times.values()) > 1
        assert rules_of(fabric, flow) == 1 + len(route) - max(times.values())
    assert any(len(set(route)) > 1 for route in routes_of(fabric).values())


def test_a_restart_adopts_the_subflows_and_sends_nothing() -> None:
    fabric = started(3, "even")
    before = routes_of(fabric)
    fabric.forget_mods()
    fabric.start(CONFIG)
    fabric.run(30)
    assert (fabric.route_mods, routes_of(fabric)) == ([], before)


def test_subflows_of_a_lost_link_get_other_paths_and_stay_equal() -> None:
    fabric = started(4, "even")
    fabric.cut(Dpid(1), PortNo(1))
    fabric.run(10)
    assert fabric.status.jobs[JOB].slowdown == pytest.approx(HOSTS / (SPINES - 1))
    assert_each_class_takes_its_path(fabric, 4)


def test_another_striping_is_planned_anew_and_loses_no_packet() -> None:
    """The slowdown with four subflows is 4/3 for shares that a sender can follow, and 3/2 for equal shares."""
    fabric = started(4, "paced")
    spec = fabric.status.jobs[JOB].spec
    assert fabric.status.jobs[JOB].slowdown == pytest.approx(4 / 3)

    def all_arrive() -> None:
        assert all(spines(fabric, flow, port) for flow in map(FlowId, RING[:3], RING[1:4]) for port in (32_768, 32_774))

    fabric.after_each_mod = all_arrive
    fabric.send(UpdateJob(spec.model_copy(update={"striping": Striping.EVEN})))
    fabric.run(5)
    assert fabric.status.jobs[JOB].slowdown == pytest.approx(3 / 2)
    assert_each_class_takes_its_path(fabric, 4)
    fabric.send(UpdateJob(spec))
    fabric.run(5)
    assert fabric.status.jobs[JOB].slowdown == pytest.approx(4 / 3)


@pytest.mark.parametrize(("striping", "predicted"), [("paced", 3 / 4), ("by_share", None), ("even", 2 / 3)])
def test_a_job_is_told_an_efficiency_only_where_its_sender_reaches_it(striping: str, predicted: float | None) -> None:
    job = started(4, striping).status.jobs[JOB]
    assert job.efficiency_predicted == (predicted and pytest.approx(predicted, rel=1e-3))
    assert bool(job.prediction_withheld) == (not predicted)
    assert not started(1, striping).status.jobs[JOB].prediction_withheld, "whole flows are not divided"


@pytest.mark.parametrize(("others", "withheld"), [(1, False), (4, True)])
def test_a_job_beside_one_with_more_connections_per_flow_is_told_no_efficiency(others: int, withheld: bool) -> None:
    """Two jobs share one spine, so each has slowdown 2.

    In the second case, four of five connections on a link belong to the other job."""
    fabric = FakeFabric(3, 1, 2)
    fabric.start(CONFIG)
    fabric.run(3)
    fabric.send(RegisterJob(ring_job("one", [f"10.0.{leaf}.1" for leaf in (1, 2, 3)], lease_s=600)))
    ring = [f"10.0.{leaf}.2" for leaf in (1, 2, 3)]
    more = ring_job("more", ring, lease_s=600, max_subflows=others, striping="even")
    fabric.send(RegisterJob(more))
    fabric.run(3)
    one, other = one_of(fabric, "one"), one_of(fabric, "more")
    assert one.slowdown == other.slowdown == pytest.approx(2.0)
    assert bool(one.prediction_withheld) == withheld
    assert other.efficiency_predicted == pytest.approx(1 / 2, rel=1e-3)
    fabric.send(DeregisterJob(JobId("more")))
    fabric.run(3)
    assert not one_of(fabric, "one").prediction_withheld
    assert one_of(fabric, "one").efficiency_predicted == pytest.approx(1.0, rel=1e-3)


def one_of(fabric: FakeFabric, job_id: str) -> JobStatus:
    return fabric.status.jobs[JobId(job_id)]
