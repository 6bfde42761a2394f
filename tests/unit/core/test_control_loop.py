"""The control loop on a fabric of fake switches: traffic keeps flowing through any event in the network."""

from __future__ import annotations

from collections import Counter

import pytest

from controller.config import JobsConfig
from controller.fabric.messages import ArpSeen, LinkSeen
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.messages import DeregisterJob, RegisterJob, RenewLease, SavedState, UpdateJob
from controller.planning.messages import ModeSet, Replan, ReplanOutcome, SetMode
from controller.planning.plan import Slowdowns
from controller.planning.problem import FlowId
from controller.tables.flow_tables import pin_key
from controller.tables.rules import FlowRule, Table, cookie_owner, job_owner
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind, Mode
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.three_rings import CONFIG, RINGS, all_flows, assert_no_collision, register, spines_used, started


@pytest.fixture
def fabric() -> FakeFabric:
    return started(FakeFabric(), 0, 1, 2)


def test_finds_every_link_and_host_and_pins_every_flow_alone(fabric: FakeFabric) -> None:
    status = fabric.status
    assert len(status.fabric.links) == 32
    assert len(status.fabric.hosts) == 12
    assert all(switch.in_sync for switch in status.switches.values())
    assert {job.state for job in status.jobs.values()} == {"pinned"}
    assert status.network_efficiency == pytest.approx(1.0)
    assert status.plan
    assert status.plan.ecmp
    assert status.plan.ecmp.mean > 1.5
    assert_no_collision(fabric)


def test_a_new_job_is_pinned_by_its_first_rules(fabric: FakeFabric) -> None:
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.run(3)
    fabric.forget_mods()
    register(fabric, 0)
    fabric.run(0.1)
    assert not fabric.mods
    fabric.run(0.2)
    assert fabric.job("job0").state == "pinned", "the plan waits for quiet"
    pins = [mod for mod in fabric.mods if isinstance(mod.rule, FlowRule)]
    assert {mod.op for mod in pins} == {"add"}
    assert Counter(mod.rule.goto for mod in pins if isinstance(mod.rule, FlowRule)) == {
        None: 8,  # four flows, both ways
        Table.DEFAULT: 4,  # other pairs of the job's hosts, which are only counted
    }


def test_an_update_keeps_the_routes_of_flows_that_stay_until_the_next_plan(fabric: FakeFabric) -> None:
    before = fabric.job("job0").routes
    shorter = RINGS[0][:3]
    fabric.forget_mods()
    fabric.send(UpdateJob(ring_job("job0", shorter)))
    fabric.run(0.2)
    kept = {FlowId(shorter[0], shorter[1]), FlowId(shorter[1], shorter[2])}
    removed = {mod.rule for mod in fabric.mods if mod.op == "delete" and isinstance(mod.rule, FlowRule)}
    assert removed
    assert removed.isdisjoint({rule for flow in kept for rule in [fabric.switches[Dpid(1)].flows.get(pin_key(flow))]})
    routes = fabric.job("job0").routes
    assert {flow: routes[flow] for flow in kept} == {flow: before[flow] for flow in kept}
    fabric.run(3)
    job = fabric.job("job0")
    assert (job.state, len(job.routes), job.spec) == ("pinned", 3, ring_job("job0", shorter))
    assert fabric.saved.jobs[JobId("job0")].spec == job.spec
    assert fabric.status.demands[JobId("job0")].declared.keys() == {flow.pair for flow in job.routes}


def test_other_pairs_tell_nothing_of_routes_that_switches_still_hold(fabric: FakeFabric) -> None:
    """Routes are published once the controller knows which pins the switches hold (``WatchRoutes``)."""
    fabric.start(CONFIG, late=[*fabric.switches])
    fabric.run(1)
    assert fabric.status.pins == 0
    job = fabric.job("job1")
    assert (job.routes_generation, job.routes_known) == (0, False)
    fabric.send(UpdateJob(job.spec.model_copy(update={"endpoints": (*job.spec.endpoints[:-1], "10.0.9.9")})))
    fabric.run(1)
    job = fabric.job("job1")
    assert (job.routes_generation, job.routes_known, fabric.status.adopting) == (1, False, True)


def test_a_restart_that_finds_a_cable_missing_waits_and_then_repairs(fabric: FakeFabric) -> None:
    for end in (PortRef(Dpid(1), PortNo(2)), PortRef(Dpid(258), PortNo(1))):
        fabric.switches[end.dpid].up[end.port] = False
    fabric.forget_mods()
    fabric.start(CONFIG)
    fabric.run(10)
    assert_no_collision(fabric)


def all_pairs_arrive(fabric: FakeFabric) -> None:
    for src in fabric.hosts:
        for dst in fabric.hosts:
            if src != dst:
                assert fabric.trace(src, dst) is not None, f"{src} > {dst} is lost"


@pytest.mark.parametrize("late", [[], [Dpid(3)], [Dpid(258)]], ids=["nobody", "a leaf", "a spine"])
@pytest.mark.parametrize("saved", [True, False])
def test_a_restart_adopts_everything_waits_for_a_late_switch_and_sends_nothing(
    fabric: FakeFabric, late: list[Dpid], saved: bool
) -> None:
    """Jobs whose state was not saved register again while a switch is late."""
    before = spines_used(fabric)
    fabric.forget_mods()
    if not saved:
        fabric.saved = SavedState()
    fabric.start(CONFIG, late=late)
    if not saved:
        register(fabric, 0, 1, 2)
    fabric.run(12)
    fabric.connect(*late)
    fabric.run(30)
    assert fabric.route_mods == []
    assert spines_used(fabric) == before
    assert not fabric.status.adopting
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}


@pytest.mark.parametrize("late", [Dpid(3), Dpid(258)], ids=["a leaf", "a spine"])
def test_a_switch_that_is_later_than_anybody_waits_loses_nothing(fabric: FakeFabric, late: Dpid) -> None:
    all_pairs_arrive(fabric)
    fabric.after_each_mod = lambda: all_pairs_arrive(fabric)
    fabric.start(CONFIG, late=[late])
    fabric.run(30)
    fabric.connect(late)
    fabric.run(30)
    assert_no_collision(fabric)


def test_a_host_in_a_foreign_prefix_gets_a_rule_of_its_own(fabric: FakeFabric) -> None:
    fabric.after_each_mod = lambda: [
        fabric.trace(src, dst) for src in fabric.hosts for dst in fabric.hosts if src != dst
    ]
    for number in (200, 201, 202, 203):
        stranger = f"10.0.1.{number}"
        fabric.hosts[stranger] = PortRef(Dpid(2), PortNo(7))
        fabric.send(ArpSeen(fabric.hosts[stranger], "request", stranger, fabric.mac(stranger), "10.0.3.1"))
    fabric.run(1)
    all_pairs_arrive(fabric)


def test_without_saved_state_pins_stay_for_one_lease(fabric: FakeFabric) -> None:
    before = spines_used(fabric)
    fabric.forget_mods()
    fabric.saved = SavedState()
    fabric.start(CONFIG.model_copy(update={"jobs": JobsConfig(orphan_lease_s=20)}))
    fabric.run(15)
    register(fabric, 0)
    fabric.run(2)
    assert spines_used(fabric) == before
    assert fabric.route_mods == []
    fabric.run(10)
    left = {
        FlowId(key.match.ip_src.address, key.match.ip_dst.address)
        for switch in fabric.switches.values()
        for key in switch.flows
        if key.match.ip_src and key.match.ip_dst
    }
    assert {flow.src_ip.rpartition(".")[2] for flow in left} == {"1"}, "only the job that came back has rules"
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}


def test_ecmp_counts_and_pins_nothing_also_after_a_restart(fabric: FakeFabric) -> None:
    message = SetMode(Mode.ECMP)
    fabric.send(message)
    fabric.run(1)
    assert isinstance(fabric.reply_to(message.reply), ModeSet)
    status = fabric.status
    assert status.pins == 0
    assert {job.state for job in status.jobs.values()} == {"ecmp"}
    assert 0 < (status.network_efficiency or 0) < 0.7
    assert len({tuple(fabric.trace(*all_flows()[0].pair, entropy) or ()) for entropy in range(4)}) == 4
    fabric.forget_mods()
    fabric.start(CONFIG)
    fabric.run(20)
    assert fabric.status.mode is Mode.ECMP
    assert fabric.route_mods == []


def test_a_job_inside_a_leaf_is_pinned_and_its_plan_installed_without_pins(fabric: FakeFabric) -> None:
    before = fabric.status.pins
    fabric.send(RegisterJob(ring_job("inside", ["10.0.1.1", "10.0.1.2", "10.0.1.3"])))
    fabric.run(3)
    plan = fabric.status.plan
    assert plan
    assert JobId("inside") in plan.job_slowdown
    assert (fabric.job("inside").state, fabric.status.pins) == ("pinned", before)
    assert fabric.status.plan_installed
    fabric.send(SetMode(Mode.SHADOW))
    fabric.request(Replan())
    assert not fabric.status.plan_installed


def test_a_pair_that_passes_to_another_job_carries_its_name(fabric: FakeFabric) -> None:
    before = spines_used(fabric)
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.send(RegisterJob(ring_job("heir", RINGS[0])))
    fabric.run(2)
    owners = {
        cookie_owner(rule.cookie)
        for switch in fabric.switches.values()
        for key, rule in switch.flows.items()
        if key.match.ip_src and key.match.ip_src.address in RINGS[0]
    }
    assert owners == {job_owner("heir")}
    assert spines_used(fabric) == before
    fabric.forget_mods()
    fabric.run(5)
    assert fabric.mods == [], "the difference is gone"


def test_without_switches_requests_are_answered() -> None:
    fabric = FakeFabric()
    fabric.switches.clear()
    fabric.start(CONFIG)
    fabric.send(SetMode(Mode.ECMP))
    fabric.send(Replan())
    fabric.run(1)
    assert {type(reply.value) for reply in fabric.replies} == {ReplanOutcome, ModeSet}


def test_shadow_plans_and_installs_nothing(fabric: FakeFabric) -> None:
    fabric.send(SetMode(Mode.SHADOW))
    fabric.run(1)
    status = fabric.status
    assert status.plan
    assert status.plan.max_slowdown == pytest.approx(1)
    assert not status.plan_installed
    assert status.pins == 0


def test_a_lease_that_runs_out_releases_the_routes(fabric: FakeFabric) -> None:
    for _ in range(5):
        fabric.run(20)
        for job in ("job0", "job1"):
            fabric.send(RenewLease(JobId(job)))
    assert set(fabric.status.jobs) == {"job0", "job1"}
    assert not [
        key
        for switch in fabric.switches.values()
        for key in switch.flows
        if key.match.ip_src and key.match.ip_src.address in RINGS[2]
    ]


def test_a_refused_pin_leaves_its_flow_on_ecmp_and_the_rest_pinned() -> None:
    fabric = started(FakeFabric())
    flow = all_flows()[0]
    fabric.switches[Dpid(1)].refuses = {pin_key(flow)}
    register(fabric, 0, lease_s=600)
    fabric.run(3)
    status, job = fabric.status, fabric.job("job0")
    assert (job.routes[flow], job.pinned, job.state) == (None, 3, "partly_pinned")
    assert [alarm.kind for alarm in status.alarms.values()] == [AlarmKind.RULES_REFUSED]
    assert [dpid for dpid, switch in status.switches.items() if not switch.in_sync] == [Dpid(1)]
    assert fabric.trace(*flow.pair) is not None
    fabric.forget_mods()
    fabric.run(100, step=1)
    tries = [mod for mod in fabric.mods if isinstance(mod.rule, FlowRule) and mod.rule.key == pin_key(flow)]
    assert 1 <= len(tries) <= 5, "less and less often"
    fabric.switches[Dpid(1)].refuses = set()
    fabric.run(61, step=1)
    assert fabric.job("job0").pinned == 4
    kinds = {alarm.kind for alarm in fabric.status.alarms.values()}
    assert kinds == {AlarmKind.COUNTERS_STALE}, "these switches do not count"


def test_baselines_stand_beside_the_plan_that_they_were_computed_for(fabric: FakeFabric) -> None:
    plan = fabric.status.plan
    assert plan
    fabric.send(Slowdowns(plan.generation - 1, of_scheme={"greedy": 3.0}))
    assert fabric.status.baseline_slowdowns == {}
    fabric.send(Slowdowns(plan.generation, of_scheme={"greedy": 2.0}))
    assert fabric.status.baseline_slowdowns == {"greedy": 2.0}
    fabric.send(Replan())
    fabric.run(0.1)
    assert fabric.status.baseline_slowdowns == {}, "a new plan, not compared yet"


def test_a_request_for_a_known_host_is_forwarded_to_it_without_the_controller(fabric: FakeFabric) -> None:
    for entropy in range(4):
        assert fabric.trace("10.0.1.1", "10.0.3.2", entropy, arp=True) is not None
    asker = fabric.hosts["10.0.1.1"]
    fabric.send(ArpSeen(asker, "request", "10.0.1.1", fabric.mac("10.0.1.1"), "10.0.3.2"))
    assert not fabric.arp_replies


def test_who_asks_for_an_unknown_host_is_told_when_it_is_found() -> None:
    fabric = started(FakeFabric())
    asker, target = "10.0.1.1", "10.0.3.2"
    fabric.send(ArpSeen(fabric.hosts[asker], "request", asker, fabric.mac(asker), target))
    (answer,) = fabric.arp_replies
    assert (answer.at, answer.ip, answer.mac) == (fabric.hosts[asker], target, fabric.mac(target))
    assert fabric.trace(asker, target) is not None


def test_a_pinned_host_whose_port_turns_out_to_be_a_link_is_forgotten_though_its_job_is_not_known(
    fabric: FakeFabric,
) -> None:
    fabric.saved = SavedState()
    fabric.start(CONFIG)
    fabric.run(5)
    at, other = fabric.hosts[RINGS[0][0]], fabric.hosts[RINGS[0][1]]
    fabric.silent_hosts = {RINGS[0][0], RINGS[0][1]}
    fabric.send(LinkSeen(at, other))
    fabric.send(LinkSeen(other, at))
    fabric.run(5)
    assert not fabric.silent_hosts & fabric.loop.fabric.hosts.keys()
