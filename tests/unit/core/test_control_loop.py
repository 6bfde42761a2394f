"""The control loop on a fabric of fake switches: traffic keeps flowing through any event in the network."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future

import pytest

from controller.config import JobsConfig
from controller.core.messages import Reply
from controller.fabric.messages import ArpSeen, LinkSeen, SwitchConnected
from controller.fabric.parts import Declared
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.fabric.topology_state import DeclaredHost
from controller.jobs.messages import DeregisterJob, RegisterJob, RenewLease, SavedState, UpdateJob
from controller.planning.messages import ModeSet, Replan, ReplanOutcome, SetMode
from controller.planning.planned import Slowdowns
from controller.planning.problem import FlowId
from controller.tables.pinned_table import pin_key
from controller.tables.rules import FlowRule, Table, cookie_owner, job_owner
from signalbox.errors import AlreadyExists, Conflict, Superseded
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind, Mode
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job
from tests.support.three_rings import CONFIG, RINGS, all_flows, assert_no_collision, register, spines_used


@pytest.fixture
def fabric() -> FakeFabric:
    """Return a fabric with three planned, running jobs."""
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0, 1, 2)
    fabric.run(3)
    return fabric


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
    assert not fabric.mods
    fabric.run(3)
    pins = [mod for mod in fabric.mods if isinstance(mod.rule, FlowRule)]
    assert {mod.op for mod in pins} == {"add"}
    assert Counter(mod.rule.goto for mod in pins if isinstance(mod.rule, FlowRule)) == {
        None: 8,  # four flows, both ways
        Table.DEFAULT: 4,  # other pairs of the job's hosts, which are only counted
    }


def test_a_job_that_waits_for_a_host_is_counted_meanwhile(fabric: FakeFabric) -> None:
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.run(3)
    fabric.silent_hosts = {"10.0.4.99"}
    fabric.send(RegisterJob(ring_job("waits", [*RINGS[0][:3], "10.0.4.99"])))
    fabric.run(3)
    assert pin_key(FlowId("10.0.1.1", "10.0.2.1")) in fabric.switches[Dpid(1)].flows


def test_an_update_keeps_the_routes_of_flows_that_stay_until_the_next_plan(fabric: FakeFabric) -> None:
    before = fabric.status.jobs[JobId("job0")].routes
    shorter = RINGS[0][:3]
    fabric.forget_mods()
    fabric.send(UpdateJob(ring_job("job0", shorter)))
    fabric.run(0.2)
    kept = {FlowId(shorter[0], shorter[1]), FlowId(shorter[1], shorter[2])}
    removed = {mod.rule for mod in fabric.mods if mod.op == "delete" and isinstance(mod.rule, FlowRule)}
    assert removed
    assert removed.isdisjoint({rule for flow in kept for rule in [fabric.switches[Dpid(1)].flows.get(pin_key(flow))]})
    routes = fabric.status.jobs[JobId("job0")].routes
    assert {flow: routes[flow] for flow in kept} == {flow: before[flow] for flow in kept}
    fabric.run(3)
    job = fabric.status.jobs[JobId("job0")]
    assert (job.state, len(job.routes), job.spec) == ("pinned", 3, ring_job("job0", shorter))
    assert fabric.saved.jobs[JobId("job0")].spec == job.spec
    assert fabric.status.demands[JobId("job0")].declared.keys() == {flow.pair for flow in job.routes}


def test_an_update_to_what_the_job_has_changes_nothing(fabric: FakeFabric) -> None:
    fabric.forget_mods()
    fabric.send(UpdateJob(ring_job("job0", RINGS[0])))
    fabric.run(2)
    assert not fabric.mods


def test_acknowledgements_come_back_over_the_same_spine(fabric: FakeFabric) -> None:
    for flow, spine in spines_used(fabric).items():
        assert fabric.trace(flow.dst_ip, flow.src_ip, entropy=3) == [
            fabric.trace(*flow.pair)[-1],  # type: ignore[index]
            spine,
            fabric.trace(*flow.pair)[0],  # type: ignore[index]
        ]


def test_a_cut_cable_loses_nothing_and_moves_only_its_flows(fabric: FakeFabric) -> None:
    before = spines_used(fabric)
    fabric.cut(Dpid(1), PortNo(2))
    spines_used(fabric)  # repaired before anything is planned
    fabric.run(3)
    assert_no_collision(fabric)
    after = spines_used(fabric)
    touched = {flow for flow, spine in before.items() if spine == "spine2" and "10.0.1." in flow.src_ip + flow.dst_ip}
    assert {flow for flow in before if before[flow] != after[flow]} == touched


def test_a_cable_that_returns_is_used_only_after_its_hold_down(fabric: FakeFabric) -> None:
    fabric.cut(Dpid(1), PortNo(2))
    fabric.run(3)
    fabric.plug(Dpid(1), PortNo(2))
    fabric.run(1)
    assert len(fabric.loop.fabric.links) == 30
    fabric.run(2)
    assert len(fabric.loop.fabric.links) == 32
    assert_no_collision(fabric)


def test_packets_arrive_after_every_single_rule_change(fabric: FakeFabric) -> None:
    """Make before break: no intermediate state loses or loops a packet of a registered flow."""

    def check() -> None:
        for flow in all_flows():
            for entropy in range(4):
                assert fabric.trace(*flow.pair, entropy) is not None

    fabric.after_each_mod = check
    fabric.send(SetMode(Mode.ECMP))
    fabric.run(1)
    fabric.send(SetMode(Mode.PLANNED))
    fabric.run(1)
    fabric.send(DeregisterJob(JobId("job1")))
    fabric.run(1)
    register(fabric, 1)
    fabric.run(1)
    assert fabric.mods


def test_a_restart_adopts_everything_and_sends_nothing(fabric: FakeFabric) -> None:
    before = spines_used(fabric)
    fabric.forget_mods()
    fabric.start(CONFIG)
    fabric.run(30)
    assert fabric.route_mods == []
    assert spines_used(fabric) == before
    assert not fabric.status.adopting
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}


def test_other_pairs_tell_nothing_of_routes_that_switches_still_hold(fabric: FakeFabric) -> None:
    """Routes are published once the controller knows which pins the switches hold (``WatchRoutes``)."""
    fabric.start(CONFIG, late=[*fabric.switches])
    fabric.run(1)
    job = fabric.status.jobs[JobId("job1")]
    assert (job.routes_generation, job.routes_known) == (0, False)
    fabric.send(UpdateJob(job.spec.model_copy(update={"endpoints": (*job.spec.endpoints[:-1], "10.0.9.9")})))
    fabric.run(1)
    job = fabric.status.jobs[JobId("job1")]
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


@pytest.mark.parametrize("late", [Dpid(3), Dpid(258)], ids=["a leaf", "a spine"])
def test_a_restart_waits_for_a_switch_that_is_late(fabric: FakeFabric, late: Dpid) -> None:
    before = spines_used(fabric)
    fabric.forget_mods()
    fabric.start(CONFIG, late=[late])
    fabric.run(12)
    fabric.connect(late)
    fabric.run(30)
    assert fabric.route_mods == []
    assert spines_used(fabric) == before


@pytest.mark.parametrize("late", [Dpid(3), Dpid(258)], ids=["a leaf", "a spine"])
def test_a_job_that_registers_again_during_adoption_keeps_its_pins(fabric: FakeFabric, late: Dpid) -> None:
    """No state was saved: the jobs register while a switch is late."""
    before = spines_used(fabric)
    fabric.saved = SavedState()
    fabric.forget_mods()
    fabric.start(CONFIG, late=[late])
    register(fabric, 0, 1, 2)
    fabric.connect(late)
    fabric.run(30)
    assert fabric.mods == []
    assert spines_used(fabric) == before


@pytest.mark.parametrize("late", [Dpid(3), Dpid(258)], ids=["a leaf", "a spine"])
def test_a_switch_that_is_later_than_anybody_waits_loses_nothing(fabric: FakeFabric, late: Dpid) -> None:
    all_pairs_arrive(fabric)
    fabric.after_each_mod = lambda: all_pairs_arrive(fabric)
    fabric.start(CONFIG, late=[late])
    fabric.run(30)
    fabric.connect(late)
    fabric.run(30)
    assert_no_collision(fabric)


def test_a_rebooted_switch_that_connects_first_is_no_complete_picture(fabric: FakeFabric) -> None:
    rebooted = fabric.switches[Dpid(258)]
    rebooted.flows, rebooted.groups, rebooted.meters = {}, {}, {}
    others = [dpid for dpid in fabric.switches if dpid != rebooted.dpid]
    fabric.start(CONFIG, late=others)
    fabric.run(3)
    fabric.forget_mods()
    fabric.connect(*others)
    fabric.run(30)
    assert [switch.name for switch in fabric.switches.values() if switch.route_mods] == [rebooted.name]
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
    fabric.saved = type(fabric.saved)()
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


def test_ecmp_counts_and_pins_nothing(fabric: FakeFabric) -> None:
    reply: Future[ModeSet] = Future()
    fabric.send(SetMode(Mode.ECMP, reply))
    fabric.run(1)
    (answer,) = [r.value for r in fabric.replies if r.future is reply]
    assert isinstance(answer, ModeSet)
    status = fabric.status
    assert status.pins == 0
    assert {job.state for job in status.jobs.values()} == {"ecmp"}
    assert 0 < (status.network_efficiency or 0) < 0.7
    assert len({tuple(fabric.trace(*all_flows()[0].pair, entropy) or ()) for entropy in range(4)}) == 4


def test_who_sets_a_mode_learns_that_another_call_came_before_the_switches_had_it(fabric: FakeFabric) -> None:
    first, second = Future[ModeSet](), Future[ModeSet]()
    both = [SetMode(Mode.ECMP, first), SetMode(Mode.PLANNED, second)]
    (answer,) = (command for command in fabric.loop.handle(both, fabric.now) if isinstance(command, Reply))
    assert answer.future is first
    assert isinstance(answer.value, Superseded)


def test_the_mode_survives_a_restart(fabric: FakeFabric) -> None:
    fabric.send(SetMode(Mode.ECMP))
    fabric.run(1)
    fabric.forget_mods()
    fabric.start(CONFIG)
    fabric.run(20)
    assert fabric.loop.state.mode is Mode.ECMP
    assert fabric.route_mods == []


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


def test_unannounced_traffic_makes_pinned_flows_move_away(fabric: FakeFabric) -> None:
    victim = all_flows()[0]
    spine = spines_used(fabric)[victim]
    number = PortNo(int(spine[-1]))
    stolen = {PortRef(Dpid(1), number), PortRef(Dpid(256 + number), PortNo(2))}
    total = 0
    for _ in range(10):
        fabric.run(2)
        total += int(0.5 * FABRIC_BPS / 8 * 2)
        fabric.count(dict.fromkeys(stolen, total), {})
    assert spines_used(fabric)[victim] != spine
    assert_no_collision(fabric)
    assert fabric.status.moved_flows_total >= 1


@pytest.mark.parametrize("mode", [Mode.PLANNED, Mode.ECMP])
def test_a_jobs_own_bytes_are_never_background(fabric: FakeFabric, mode: Mode) -> None:
    fabric.send(SetMode(mode))
    fabric.run(1)
    before = spines_used(fabric)
    total = 0
    for _ in range(10):
        fabric.run(2)
        total += int(0.9 * FABRIC_BPS / 8 * 2)
        ports: dict[PortRef, int] = {}
        for flow, spine in spines_used(fabric).items():
            src, dst, number = fabric.hosts[flow.src_ip], fabric.hosts[flow.dst_ip], int(spine[-1])
            for at in (PortRef(src.dpid, PortNo(number)), PortRef(Dpid(256 + number), PortNo(dst.dpid)), dst):
                ports[at] = ports.get(at, 0) + total
        fabric.count(ports, {tuple(flow): total for flow in all_flows()})  # type: ignore[misc]
    status = fabric.status
    assert all(link.background_bps == 0 for link in status.links.values())
    assert max(link.rate_bps or 0.0 for link in status.links.values()) > 0.8 * FABRIC_BPS
    assert spines_used(fabric) == before


def test_a_job_waits_for_hosts_that_are_not_found_yet() -> None:
    fabric = FakeFabric()
    fabric.silent_hosts = {RINGS[0][2]}
    fabric.start(CONFIG)
    fabric.run(3)
    register(fabric, 0)
    fabric.run(3)
    job = fabric.status.jobs[JobId("job0")]
    assert job.state == "pending"
    assert job.missing_hosts == (RINGS[0][2],)
    fabric.silent_hosts = set()
    fabric.run(3)
    assert fabric.status.jobs[JobId("job0")].state == "pinned"


def test_errors_are_replies_and_change_nothing(fabric: FakeFabric) -> None:
    fabric.forget_mods()
    fabric.replies.clear()
    fabric.send(RegisterJob(ring_job("job0", RINGS[1])))
    fabric.send(RegisterJob(ring_job("other", RINGS[1])))
    fabric.run(1)
    assert [type(reply.value) for reply in fabric.replies] == [AlreadyExists, Conflict]
    assert fabric.mods == []


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
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    flow = all_flows()[0]
    fabric.switches[Dpid(1)].refuses = {pin_key(flow)}
    fabric.send(RegisterJob(ring_job("job0", RINGS[0], lease_s=600)))
    fabric.run(3)
    status = fabric.status
    (job,) = status.jobs.values()
    assert job.routes[flow] is None
    assert job.pinned == 3
    assert [alarm.kind for alarm in status.alarms.values()] == [AlarmKind.RULES_REFUSED]
    assert fabric.trace(*flow.pair) is not None
    fabric.forget_mods()
    fabric.run(100, step=1)
    tries = [mod for mod in fabric.mods if isinstance(mod.rule, FlowRule) and mod.rule.key == pin_key(flow)]
    assert 1 <= len(tries) <= 5, "less and less often"
    fabric.switches[Dpid(1)].refuses = set()
    fabric.run(61, step=1)
    status = fabric.status
    assert status.jobs[JobId("job0")].pinned == 4
    assert {alarm.kind for alarm in status.alarms.values()} == {AlarmKind.COUNTERS_STALE}, "these switches do not count"


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


def test_replan_tells_what_became_of_it(fabric: FakeFabric) -> None:
    reply: Future[ReplanOutcome] = Future()
    fabric.send(Replan(reply))
    fabric.run(1)
    (outcome,) = [r.value for r in fabric.replies if r.future is reply]
    assert isinstance(outcome, ReplanOutcome)
    assert outcome.outcome == "kept"


def test_a_spine_that_leaves_and_returns_without_rules_is_used_only_with_them(fabric: FakeFabric) -> None:
    spine = fabric.switches[Dpid(258)]
    for port in spine.peers:
        fabric.cut(spine.dpid, port)
    fabric.lose(spine.dpid)
    fabric.run(3)
    assert_no_collision(fabric)
    spine.flows, spine.groups, spine.meters = {}, {}, {}
    spine.up = dict.fromkeys(spine.peers, True)
    for switch in fabric.switches.values():
        switch.up = dict.fromkeys(switch.up, True)

    def check() -> None:
        for flow in all_flows():
            assert fabric.trace(*flow.pair) is not None

    fabric.after_each_mod = check
    fabric.send(SwitchConnected(spine.dpid, spine.name, spine.ports()))
    for port, peer in spine.peers.items():
        assert peer
        fabric.plug(peer.dpid, peer.port)
        _ = port
    fabric.run(5)
    assert len(fabric.loop.fabric.links) == 32


def test_a_request_for_a_known_host_is_forwarded_to_it_without_the_controller(fabric: FakeFabric) -> None:
    for entropy in range(4):
        assert fabric.trace("10.0.1.1", "10.0.3.2", entropy, arp=True) is not None
    asker = fabric.hosts["10.0.1.1"]
    fabric.send(ArpSeen(asker, "request", "10.0.1.1", fabric.mac("10.0.1.1"), "10.0.3.2"))
    assert not fabric.arp_replies


def test_who_asks_for_an_unknown_host_is_told_when_it_is_found() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    asker, target = "10.0.1.1", "10.0.3.2"
    fabric.send(ArpSeen(fabric.hosts[asker], "request", asker, fabric.mac(asker), target))
    (answer,) = fabric.arp_replies
    assert (answer.at, answer.ip, answer.mac) == (fabric.hosts[asker], target, fabric.mac(target))
    assert fabric.trace(asker, target) is not None


def test_a_host_cannot_take_an_address_whose_port_is_up(fabric: FakeFabric) -> None:
    victim, thief = "10.0.1.1", fabric.hosts["10.0.2.2"]
    fabric.send(ArpSeen(thief, "request", victim, "02:00:00:00:99:99", "10.0.3.1"))
    fabric.run(1)
    assert fabric.loop.fabric.hosts[victim].at == fabric.hosts[victim]


@pytest.mark.parametrize("known", [True, False], ids=["its job is known", "its job is not known any more"])
def test_a_pinned_host_whose_port_turns_out_to_be_a_link_is_forgotten(fabric: FakeFabric, known: bool) -> None:
    if not known:
        fabric.saved = type(fabric.saved)()
        fabric.start(CONFIG)
        fabric.run(5)
    at, other = fabric.hosts[RINGS[0][0]], fabric.hosts[RINGS[0][1]]
    fabric.silent_hosts = {RINGS[0][0], RINGS[0][1]}
    fabric.send(LinkSeen(at, other))
    fabric.send(LinkSeen(other, at))
    fabric.run(5)
    assert not fabric.silent_hosts & fabric.loop.fabric.hosts.keys()
    states = {str(job.spec.job_id): job.state for job in fabric.status.jobs.values()}
    assert states == ({"job0": "pending", "job1": "pinned", "job2": "pinned"} if known else {})


def test_declared_hosts_need_no_packet_to_be_found() -> None:
    fabric = FakeFabric()
    fabric.silent_hosts = set(fabric.hosts)
    names = {dpid: switch.name for dpid, switch in fabric.switches.items()}
    hosts = fabric.hosts.items()
    fabric.declared = Declared(
        tuple(DeclaredHost(ip, None, names[at.dpid], f"{names[at.dpid]}-eth{at.port}") for ip, at in hosts)
    )
    fabric.start(CONFIG)
    register(fabric, 0)
    fabric.run(3)
    assert fabric.status.jobs[JobId("job0")].state == "pinned"


def test_parallel_cables_are_told_apart_at_both_ends() -> None:
    """Each leaf has two cables to the only spine. The spine has a choice too, so the flow is pinned there as well."""
    fabric = FakeFabric(leaves=2, spines=2, hosts_per_leaf=2)
    spine, other = fabric.switches[Dpid(257)], fabric.switches.pop(Dpid(258))
    for leaf in (Dpid(1), Dpid(2)):
        port = PortNo(leaf + 2)
        spine.peers[port] = PortRef(leaf, PortNo(2))
        spine.up[port] = True
        fabric.switches[leaf].peers[PortNo(2)] = PortRef(spine.dpid, port)
    assert other.name == "spine2"
    fabric.start(CONFIG)
    fabric.run(3)
    for number in (1, 2):
        fabric.send(RegisterJob(ring_job(f"job{number}", [f"10.0.1.{number}", f"10.0.2.{number}"])))
    fabric.run(3)
    status = fabric.status
    assert status.network_efficiency == pytest.approx(1.0)
    assert {job.state for job in status.jobs.values()} == {"pinned"}
    assert any(pin_key(FlowId("10.0.1.1", "10.0.2.1")) == key for key in spine.flows)
