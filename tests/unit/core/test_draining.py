"""Draining of parts of the fabric: every flow moves away without a lost packet, then no packet uses the part."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise, permutations, product

import pytest

from controller.config import Config
from controller.fabric.drains import Drain
from controller.fabric.messages import DrainParts, ForgetParts, LinkSeen, UndrainParts
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.messages import DeregisterJob, RegisterJob
from controller.planning.analysis.dispatch import analyse
from controller.planning.analysis.messages import Analyse, WhatIf
from controller.planning.messages import SetMode
from controller.status import DrainStatus
from controller.tables.rules import Output, ToGroup
from signalbox.errors import NO_SUCH_NAME, Conflict, InvalidInput, NotKnownYet
from signalbox.jobs.spec import JobId
from signalbox.words import FailureKind, Mode
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.three_rings import started

LEAF1, SPINE2, SPINE3 = Dpid(1), Dpid(258), Dpid(259)


@pytest.fixture
def fabric() -> FakeFabric:
    return trained(Config())


def trained(config: Config) -> FakeFabric:
    fabric = started(FakeFabric(), 0, 1, config=config)
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    return fabric


def drain(fabric: FakeFabric, *names: str) -> None:
    found = fabric.request(DrainParts(names, at=1e9))
    if isinstance(found, Exception):
        raise found


def undrain(fabric: FakeFabric, *names: str) -> None:
    found = fabric.request(UndrainParts(names))
    if isinstance(found, Exception):
        raise found


def visited(fabric: FakeFabric) -> set[str]:
    return {name for way in ways(fabric) for name in way}


def ways(fabric: FakeFabric, entropies: int = 8) -> Iterator[list[str]]:
    """Yield the paths of packets between hosts of jobs; fail when a packet is lost."""
    known = [ip for ip in fabric.hosts if not ip.endswith(".3")]
    for (src, dst), entropy in product(permutations(known, 2), range(entropies)):
        way = fabric.trace(src, dst, entropy)
        assert way is not None, f"{src} > {dst} is lost"
        yield way


def state(fabric: FakeFabric, name: str) -> DrainStatus:
    return fabric.status.drains[name]


def test_no_packet_goes_over_a_drained_spine_and_none_is_lost_on_the_way(fabric: FakeFabric) -> None:
    fabric.after_each_mod = lambda: deque(ways(fabric, 1), 0)
    before = visited(fabric)
    drain(fabric, "spine2")
    fabric.run(1)
    assert (fabric.status.repairs_total, fabric.status.repair, dict(fabric.status.alarms)) == (0, None, {})
    assert before - visited(fabric) == {"spine2"}
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    undrain(fabric, "spine2")
    fabric.run(40)
    assert visited(fabric) == before


def test_a_flow_through_a_drained_spine_is_one_though_it_uses_two_of_its_links(
    fabric: FakeFabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows = {pair for job in fabric.status.jobs.values() for pair in job.routes}
    through = sum("spine2" in (fabric.trace(*flow.pair) or ()) for flow in flows)
    monkeypatch.setattr(fabric.planner, "answers", lambda _: [])  # the planner has not answered yet
    drain(fabric, "spine2")
    assert (state(fabric, "spine2").state, state(fabric, "spine2").flows) == ("moving", through)
    assert through


def test_it_can_be_pulled_when_counters_show_nothing_but_probes(fabric: FakeFabric) -> None:
    drain(fabric, "spine2")
    fabric.run(1)
    assert state(fabric, "spine2").state == "measuring"
    ports = {PortRef(SPINE2, port): 10**9 for port in fabric.switches[SPINE2].peers}
    fabric.count(ports, {})
    fabric.run(1)
    assert state(fabric, "spine2").state == "measuring"
    fabric.count({at: total + 100 for at, total in ports.items()}, {})
    safe = state(fabric, "spine2")
    assert safe == DrainStatus("spine2", 1e9, "safe", 0, 8, safe.rate_bps)
    assert safe.rate_bps == pytest.approx(800, rel=0.01)
    fabric.run(1)
    fabric.count({at: total + 100_000 for at, total in ports.items()}, {})
    assert state(fabric, "spine2").state == "carrying"


@pytest.mark.parametrize(("name", "other"), [("leaf1:spine2", "leaf1:2"), ("spine2:1", "leaf1:leaf1-eth2")])
@pytest.mark.parametrize("pulled_first", [True, False])
def test_a_pulled_part_is_safe_and_stays_drained_when_it_is_back(
    fabric: FakeFabric, name: str, other: str, pulled_first: bool
) -> None:
    """The cable has the same names while it is down."""
    pull, drain_it = partial(fabric.cut, LEAF1, PortNo(2)), partial(drain, fabric, name)
    for act in (pull, drain_it) if pulled_first else (drain_it, pull):
        act()
        fabric.run(2)
    (cable,) = fabric.status.drains
    assert cable == "leaf1:2>spine2"
    assert (state(fabric, cable).state, state(fabric, cable).links) == ("safe", 0)
    assert fabric.status.repairs_total == int(pulled_first)
    assert not fabric.status.alarms
    fabric.plug(LEAF1, PortNo(2))
    fabric.run(10)
    assert state(fabric, cable).links == 2
    assert all(way[:2] != ["leaf1", "spine2"] and way[1:] != ["spine2", "leaf1"] for way in ways(fabric))
    fabric.cut(LEAF1, PortNo(2))
    fabric.run(2)
    undrain(fabric, other)
    assert not fabric.status.drains


def test_drains_survive_a_restart_and_a_failed_commit_changes_nothing(fabric: FakeFabric) -> None:
    drain(fabric, "spine2")
    fabric.run(1)
    fabric.start()
    fabric.run(20)
    assert list(fabric.status.drains) == ["spine2"]
    assert "spine2" not in visited(fabric)
    fabric.disk_error = "the disk is full"
    with pytest.raises(Exception, match="cannot be saved"):
        drain(fabric, "spine3")
    with pytest.raises(Exception, match="cannot be saved"):
        undrain(fabric, "spine2")
    assert list(fabric.status.drains) == ["spine2"]
    fabric.run(1)
    assert "spine3" in visited(fabric)
    assert "spine2" not in visited(fabric)


def test_flows_move_within_the_moves_allowed() -> None:
    fabric = trained(Config.model_validate({"planning": {"max_moves": 1}}))
    routes = [fabric.loop.state.routes.routes]
    fabric.after_each_mod = lambda: routes.append(fabric.loop.state.routes.routes)
    drain(fabric, "spine2", "spine3")
    fabric.run(20)
    assert not {"spine2", "spine3"} & visited(fabric)
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    distinct = [one for n, one in enumerate(routes) if n == 0 or one is not routes[n - 1]]
    moved = [sum(before.get(flow) != route for flow, route in after.items()) for before, after in pairwise(distinct)]
    assert sum(moved) >= 4
    assert max(moved) <= 2, "one that has to, and one that may"


@pytest.mark.parametrize("others_run", [True, False])
def test_a_job_that_waits_for_a_host_holds_no_drain(fabric: FakeFabric, others_run: bool) -> None:
    """The other hosts of the job send over the part that is to be drained.

    The job has no plan, so its flows are then hashed over the remaining links."""
    if not others_run:
        fabric.send(DeregisterJob(JobId("job0")))
    lost = "10.0.1.2"
    fabric.silent_hosts.add(lost)
    fabric.send(LinkSeen(fabric.hosts[lost], PortRef(Dpid(0x77), PortNo(1))))
    del fabric.hosts[lost]
    fabric.run(1)
    assert fabric.status.jobs[JobId("job1")].state == "pending"
    drain(fabric, "spine1")
    fabric.run(1)
    waits = state(fabric, "spine1").waits_for
    assert "leaf1 (rules still send to it)" in waits, "they are kept for hosts that are not found since the start"
    undrain(fabric, "spine1")
    fabric.run(60)
    used = {way[1] for way in ways(fabric, 1) if len(way) == 3}
    for name in sorted(used)[:3]:
        drain(fabric, name)
        fabric.run(3)
        assert state(fabric, name).state == "measuring"
        assert name not in visited(fabric)


@pytest.mark.parametrize("mode", [Mode.ECMP, Mode.SHADOW])
def test_hashed_traffic_moves_too(fabric: FakeFabric, mode: Mode) -> None:
    fabric.send(SetMode(mode))
    drain(fabric, "spine2")
    fabric.run(2)
    assert "spine2" not in visited(fabric)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("spine9", r"names\[0\]: there is no switch 'spine9'; a part is a switch"),
        ("leaf1:9", r"names\[0\]: 'leaf1:9': leaf1 has no such cable"),
        ("leaf1:5", r"names\[0\]: 'leaf1:5' leads to host 10.0.1.1; only cables between switches can be drained"),
    ],
)
def test_what_is_not_there_cannot_be_drained(fabric: FakeFabric, name: str, error: str) -> None:
    with pytest.raises(InvalidInput, match=error) as refused:
        drain(fabric, name)
    (problem,) = refused.value.problems
    assert (problem.reason == NO_SUCH_NAME) is (name != "leaf1:5"), "a port with a host is there"
    with pytest.raises(InvalidInput, match=r"names\[0\]: .* is not drained; drained parts: none"):
        undrain(fabric, name)


def test_what_would_cut_hosts_off_is_refused(fabric: FakeFabric) -> None:
    with pytest.raises(Conflict, match="hosts on leaf1 would have no path to others: nothing is drained"):
        drain(fabric, "leaf1")
    drain(fabric, "spine1", "spine2")
    with pytest.raises(Conflict, match="would have no path"):
        drain(fabric, "spine3", "leaf2:spine4")
    assert list(fabric.status.drains) == ["spine1", "spine2"]


def test_nothing_is_safe_before_a_restarted_controller_knows_what_runs(fabric: FakeFabric) -> None:
    """The drain was saved, and no flow had moved when the controller ended."""
    fabric.saved = replace(fabric.saved, drains={"spine2": Drain(SPINE2, "spine2", 1e9)})
    fabric.start(late=fabric.switches)
    with pytest.raises(NotKnownYet):
        drain(fabric, "spine1")
    states = [state(fabric, "spine2").state]
    for _ in range(100):
        fabric.run(0.1)
        fabric.count({}, {})
        states.append(state(fabric, "spine2").state)
        if len(states) == 20:
            fabric.connect(*fabric.switches)
        if states[-1] == "safe":
            assert "spine2" not in visited(fabric)
            break
    assert states[-1] == "safe"
    assert "safe" not in states[:-1]


@pytest.mark.parametrize("name", ["leaf1:spine2", "spine2"])
def test_what_fails_is_asked_of_what_is_in_use(fabric: FakeFabric, name: str) -> None:
    drain(fabric, name)
    fabric.run(2)
    asked = WhatIf(frozenset(FailureKind), None, 1.0)
    (command,) = [c for c in fabric.loop.handle([asked], fabric.now) if isinstance(c, Analyse)]
    analyse(command.request)


def test_a_switch_in_the_place_of_a_drained_one_is_another_part(fabric: FakeFabric) -> None:
    drain(fabric, "spine2")
    fabric.run(2)
    fabric.switches[SPINE3].name = "spine2"
    fabric.connect(SPINE3)
    fabric.run(2)
    with pytest.raises(InvalidInput, match=r"switches .* have the name 'spine2': use the dpid"):
        drain(fabric, "spine2")
    here = f"{SPINE3:#x}"
    drain(fabric, here)
    assert set(fabric.status.drains) == {"spine2", here}
    assert state(fabric, here).state != "safe"
    undrain(fabric, here)
    assert list(fabric.status.drains) == ["spine2"]


def test_of_switches_of_one_name_each_is_drained_and_undrained_by_its_dpid_and_so_are_its_cables(
    fabric: FakeFabric,
) -> None:
    drain(fabric, "spine2")
    undrain(fabric, f"{SPINE2:#x}")
    assert not fabric.status.drains
    fabric.switches[Dpid(2)].name = "leaf1"
    fabric.connect(Dpid(2))
    fabric.run(2)
    drain(fabric, "0x2:1")
    there = fabric.switches[Dpid(2)].peers[PortNo(1)]
    assert there
    drained = fabric.loop.state.drains.parts.values()
    assert [each.part for each in drained] == [frozenset({PortRef(Dpid(2), PortNo(1)), there})]
    undrain(fabric, "0x2:1")
    assert not fabric.status.drains


def test_a_replaced_switch_of_the_same_name_is_drained_by_itself(fabric: FakeFabric) -> None:
    """The drained switch never returns."""
    gone = Drain(Dpid(0x999), "spine2", 1e9)
    fabric.saved = replace(fabric.saved, drains={"spine2": gone})
    fabric.start()
    fabric.run(20)
    assert "spine2" in visited(fabric)
    drain(fabric, "spine2")
    fabric.run(5)
    assert "spine2" not in visited(fabric)
    assert [drained.links for _, drained in sorted(fabric.status.drains.items())] == [8, 0]


def test_names_are_limited(fabric: FakeFabric) -> None:
    for ask in (drain, undrain):
        with pytest.raises(InvalidInput, match=r"names: at most 1000 names are allowed \(given: 1001\)"):
            ask(fabric, *["leaf1:spine2"] * 1001)


def counted_again(fabric: FakeFabric) -> None:
    for _ in range(2):
        fabric.run(1)
        fabric.count({}, {})


def wait_until_safe(fabric: FakeFabric, seconds: float = 1.0, name: str = "spine2") -> None:
    fabric.run(seconds)
    counted_again(fabric)
    assert (state(fabric, name).state, state(fabric, name).waits_for) == ("safe", ())


def test_a_refused_rule_holds_only_the_part_that_it_sends_to(fabric: FakeFabric) -> None:
    """The leaf refuses changes of groups whose first choice is spine2, and of pins that lead to these groups."""
    leaf1, held = fabric.switches[LEAF1], Output(PortNo(2))
    first = {n: group.buckets[0].action for n, group in leaf1.groups.items() if group.kind == "fast_failover"}
    groups = {n for n, action in first.items() if action == held}
    pins = {rule.key for rule in leaf1.flows.values() if any(ToGroup(group) in rule.actions for group in groups)}
    assert pins
    leaf1.refuses_groups, leaf1.refuses = set(groups), pins
    drain(fabric, "spine2", "spine3", "leaf2:spine2")
    fabric.run(5)
    counted_again(fabric)
    assert "spine2" in visited(fabric)
    refused = len(fabric.loop.state.sync.refused)
    assert state(fabric, "spine2") == DrainStatus(
        "spine2", 1e9, "confirming", 0, 8, None, (f"leaf1 ({refused} rules refused)",)
    )
    assert state(fabric, "spine3").state == "safe"
    assert state(fabric, "leaf2:2>spine2").waits_for == ("spine2 (rules still send to it)",), "for what still comes in"
    leaf1.refuses_groups.clear()
    leaf1.refuses.clear()
    fabric.run(100)
    counted_again(fabric)
    assert {drained.state for drained in fabric.status.drains.values()} == {"safe"}


def test_a_leaf_without_control_connection_is_waited_for_by_its_name(fabric: FakeFabric) -> None:
    """The leaf forwards with the rules that it has, and may send to the drained part."""
    fabric.lose(LEAF1)
    fabric.run(10)
    drain(fabric, "spine2", "leaf2:spine3")
    counted_again(fabric)
    waits = state(fabric, "spine2")
    assert (waits.state, waits.waits_for) == ("confirming", ("leaf1 (no control connection)",))
    assert state(fabric, "leaf2:3>spine3").state == "safe", "leaf1 has no cable to it"
    fabric.connect(LEAF1)
    wait_until_safe(fabric, 20)
    fabric.lose(LEAF1)
    fabric.run(10)
    counted_again(fabric)
    assert state(fabric, "spine2").state == "safe", "it was confirmed, and the leaf keeps its rules"


def test_a_leaf_that_comes_back_with_other_rules_is_looked_at_anew(fabric: FakeFabric) -> None:
    """An operator restores the rules that the leaf had before the drain."""
    before = fabric.switches[LEAF1].rules()
    drain(fabric, "spine2")
    wait_until_safe(fabric)
    fabric.lose(LEAF1)
    fabric.run(10)
    fabric.switches[LEAF1].flows = dict(before.flows)
    fabric.switches[LEAF1].groups = dict(before.groups)
    seen = []
    fabric.after_each_mod = lambda: seen.append(state(fabric, "spine2"))
    fabric.connect(LEAF1)
    assert seen
    assert {(waits.state, waits.waits_for) for waits in seen} <= {
        ("confirming", ("leaf1 (its rules are being read)",)),
        ("confirming", ("leaf1 (rules not confirmed)",)),
    }
    wait_until_safe(fabric, 20)


def test_what_is_drained_once_more_is_not_safe_by_what_was_measured_then(fabric: FakeFabric) -> None:
    fabric.send(SetMode(Mode.ECMP))
    drain(fabric, "spine2")
    wait_until_safe(fabric)
    undrain(fabric, "spine2")
    fabric.run(2)
    assert "spine2" in visited(fabric)
    seen = []
    fabric.after_each_mod = lambda: seen.append(state(fabric, "spine2").state)
    drain(fabric, "spine2")
    assert seen
    assert set(seen) == {"confirming"}


def test_the_cables_of_a_spine_can_be_drained_one_by_one(fabric: FakeFabric) -> None:
    """After the last cable the spine has no path to anywhere, and it keeps its groups."""
    for leaf in range(1, 5):
        drain(fabric, f"leaf{leaf}:spine2")
        fabric.run(5)
    counted_again(fabric)
    assert {drained.state for drained in fabric.status.drains.values()} == {"safe"}


def test_old_counters_say_nothing(fabric: FakeFabric) -> None:
    drain(fabric, "spine2")
    wait_until_safe(fabric)
    for _ in range(25):
        fabric.run(1)
        fabric.count_rules({}, {}, of=[dpid for dpid in fabric.switches if dpid != LEAF1])
    waits = state(fabric, "spine2")
    assert (waits.state, waits.waits_for) == ("measuring", ("leaf1 (counters not read yet)",))
    counted_again(fabric)
    assert state(fabric, "spine2").state == "safe"


def test_a_spine_that_is_dark_can_be_drained_before_it_comes_back(fabric: FakeFabric) -> None:
    fabric.lose(SPINE2)
    for leaf in range(1, 5):
        fabric.cut(Dpid(leaf), PortNo(2))
    fabric.run(10)
    drain(fabric, "spine2")
    fabric.run(1)
    assert (state(fabric, "spine2").state, state(fabric, "spine2").links) == ("safe", 0)
    assert not fabric.status.alarms
    for leaf in range(1, 5):
        fabric.plug(Dpid(leaf), PortNo(2))
    fabric.connect(SPINE2)
    fabric.run(60)
    assert state(fabric, "spine2").links == 8
    assert "spine2" not in visited(fabric)


def test_a_spine_that_only_the_controller_does_not_reach_is_measured_at_its_leaves(fabric: FakeFabric) -> None:
    fabric.lose(SPINE2)
    fabric.run(10)
    drain(fabric, "spine2")
    fabric.run(1)
    assert state(fabric, "spine2").state == "measuring"
    counted_again(fabric)
    assert state(fabric, "spine2").state == "safe"
    fabric.run(1)
    fabric.count({PortRef(LEAF1, PortNo(2)): 10**6}, {})
    assert state(fabric, "spine2").state == "carrying"


def test_what_was_forgotten_says_that_it_is_never_safe(fabric: FakeFabric) -> None:
    fabric.cut(LEAF1, PortNo(2))
    fabric.run(10)
    drain(fabric, "leaf1:2")
    fabric.send(ForgetParts(("leaf1:2",)))
    fabric.run(2)
    waits = state(fabric, "leaf1:2>spine2")
    assert waits.state == "confirming"
    assert waits.waits_for == ("leaf1:2>spine2 (the controller knows no such part: undrain it)",)


def test_hosts_that_jobs_name_are_not_cut_off_though_they_are_down(fabric: FakeFabric) -> None:
    """Each job names a host of the leaf. The ports of the leaf's hosts are down, but the hosts may return."""
    for at in fabric.hosts.values():
        if at.dpid == LEAF1:
            fabric.cut(*at)
    fabric.run(2)
    with pytest.raises(Conflict, match="hosts on leaf1 would have no path to others"):
        drain(fabric, "leaf1")
    for number in range(2):
        fabric.send(DeregisterJob(JobId(f"job{number}")))
    fabric.run(2)
    drain(fabric, "leaf1")


def test_the_only_leaf_with_hosts_is_not_drained() -> None:
    """Hosts can reach each other only over this leaf."""
    fabric = FakeFabric(leaves=2, spines=2)
    fabric.silent_hosts = {ip for ip, at in fabric.hosts.items() if at.dpid != LEAF1}
    started(fabric, config=Config())
    fabric.send(RegisterJob(ring_job("job", [ip for ip, at in fabric.hosts.items() if at.dpid == LEAF1])))
    fabric.run(2)
    assert {host.at.dpid for host in fabric.status.fabric.hosts.values()} == {LEAF1}
    with pytest.raises(Conflict, match="hosts on leaf1 would have no path to others"):
        drain(fabric, "leaf1")


def test_a_host_that_is_found_on_a_drained_switch_is_waited_for() -> None:
    """The host was unknown when the switch was drained."""
    fabric = FakeFabric(leaves=3, spines=2)
    fabric.silent_hosts = {ip for ip, at in fabric.hosts.items() if at.dpid == LEAF1}
    started(fabric, config=Config())
    ips = [ip for ip in fabric.hosts if ip.endswith(".1")]
    fabric.send(RegisterJob(ring_job("job", ips)))
    fabric.run(2)
    drain(fabric, "leaf1")
    wait_until_safe(fabric, name="leaf1")
    fabric.silent_hosts = set()
    fabric.run(20)
    waits = state(fabric, "leaf1")
    assert (waits.state, waits.waits_for) == ("confirming", (f"{ips[0]} (host connected)",))


def test_flows_that_leave_a_detour_are_no_repair() -> None:
    """No packet was lost: the longer paths of the flows still exist."""
    fabric = started(FakeFabric(leaves=3, spines=2, hosts_per_leaf=1), config=Config())
    fabric.send(RegisterJob(ring_job("job", list(fabric.hosts))))
    fabric.run(2)
    drain(fabric, "leaf1:spine1")
    fabric.run(2)
    fabric.cut(Dpid(2), PortNo(2))
    fabric.run(2)
    assert fabric.trace("10.0.1.1", "10.0.2.1") == ["leaf1", "spine2", "leaf3", "spine1", "leaf2"]
    counted = fabric.status.repairs_total
    assert sum(fabric.status.repair_times.counts) == counted == 1
    undrain(fabric, "leaf1:spine1")
    fabric.run(5)
    assert fabric.trace("10.0.1.1", "10.0.2.1") == ["leaf1", "spine1", "leaf2"]
    assert sum(fabric.status.repair_times.counts) == fabric.status.repairs_total == counted
