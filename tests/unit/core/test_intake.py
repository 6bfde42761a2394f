"""Effects of messages and ticks that the other tests do not cover."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from controller.fabric.messages import ArpSeen, LinkLost, LinkSeen
from controller.fabric.topology import Dpid, LinkId, PortNo, PortRef
from controller.jobs.messages import DeregisterJob, RegisterJob, SavedState
from controller.planning.messages import SetMode
from controller.planning.problem import FlowId
from controller.tables.rules import FlowKey, GroupRule, Table
from signalbox.jobs.spec import JobId
from signalbox.words import Mode
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.late_answers import SlowSolver
from tests.support.three_rings import CONFIG, RINGS, register, started

UPLINK = PortRef(Dpid(1), PortNo(1))


def test_background_is_measured_when_all_switches_have_answered() -> None:
    fabric = started(FakeFabric())
    first, *others = fabric.switches
    before = fabric.loop.derived.background()
    for total in range(10):
        fabric.count_rules({UPLINK: total * 1_000_000}, {}, of=others)
        fabric.run(0.1)
        assert fabric.loop.derived.background() is before, "a switch has not answered"
        fabric.count_rules({UPLINK: total * 1_000_000}, {}, of=[first])
        assert fabric.loop.derived.background() is not before
        before = fabric.loop.derived.background()
        fabric.run(1.9)
        assert fabric.loop.derived.background() is before, "once per interval"
    assert before[LinkId(*UPLINK)] > 0


def test_a_controller_that_was_stopped_for_longer_than_a_lease_waits_one_more_for_a_heartbeat() -> None:
    """A controller stopped by SIGSTOP or a hypervisor could not receive the heartbeats sent meanwhile."""
    fabric = started(FakeFabric())
    fabric.send(RegisterJob(ring_job("short", RINGS[0], lease_s=5)))
    fabric.run(4)
    fabric.now += 30
    fabric.run(4)
    assert [*fabric.status.jobs] == ["short"]
    fabric.run(2)
    assert not fabric.status.jobs


def test_under_ecmp_pins_that_switches_hold_are_given_up() -> None:
    """The operator set the mode while the switches were unreachable."""
    fabric = started(FakeFabric(), 0)
    assert fabric.status.pins
    fabric.saved = replace(fabric.saved, mode=Mode.ECMP)
    fabric.start(CONFIG)
    fabric.run(10)
    assert (fabric.status.pins, fabric.job("job0").state) == (0, "ecmp")


def test_pins_of_unknown_jobs_go_when_another_mode_is_set() -> None:
    """The pins would otherwise stay for the length of the lease."""
    fabric = started(FakeFabric(), 0)
    fabric.saved = SavedState()
    fabric.start(CONFIG)
    fabric.run(5)
    assert any(pinned(fabric))
    fabric.send(SetMode(Mode.ECMP))
    fabric.run(1)
    assert not any(pinned(fabric))


def test_a_job_that_registers_again_changes_nothing_but_its_lease() -> None:
    fabric = started(SlowSolver(), 0)
    fabric.solve()
    fabric.run(1)
    saved = fabric.saved
    fabric.forget_mods()
    register(fabric, 0)
    fabric.run(1)
    assert (fabric.solving, fabric.mods) == ([], [])
    assert fabric.saved is saved


def test_a_job_that_goes_before_its_plan_comes_leaves_nothing_behind() -> None:
    fabric = started(SlowSolver(leaves=2, spines=3, hosts_per_leaf=4))
    ring = [f"10.0.{leaf}.{host}" for host in range(1, 5) for leaf in (1, 2)]
    for _ in range(2):  # the hosts are known at the second registration
        fabric.send(RegisterJob(ring_job("job0", ring, max_subflows=4)))
        fabric.run(1)
        assert fabric.solving
        fabric.send(DeregisterJob(JobId("job0")))
    fabric.send(RegisterJob(ring_job("job0", [*ring[:2], "10.0.4.99"])))
    fabric.run(0.2)
    assert any(pinned(fabric)), "another job of this name: its flows are counted while a host is missing"
    fabric.solve()
    assert fabric.saved.shares == {}


def test_rules_and_routes_follow_a_host_that_moves() -> None:
    fabric = started(FakeFabric(), 0)
    host, before = RINGS[0][0], fabric.hosts[RINGS[0][0]]
    fabric.cut(*before)
    fabric.hosts[host] = PortRef(Dpid(2), PortNo(7))
    fabric.send(ArpSeen(fabric.hosts[host], "request", host, fabric.mac(host), RINGS[0][1]))
    assert fabric.trace("10.0.3.1", host)
    fabric.run(1)
    assert fabric.job("job0").state == "pinned"
    assert fabric.trace(host, RINGS[0][1]) == ["leaf2"]


def test_a_host_that_appears_is_seen_by_each_job_that_still_waits_for_it() -> None:
    fabric = FakeFabric()
    late = RINGS[0][1]
    fabric.silent_hosts = {late}
    started(fabric)
    for n in (0, 1):
        fabric.send(RegisterJob(ring_job(f"job{n}", [RINGS[n][0], late])))
    fabric.run(1)
    assert fabric.job("job1").missing_hosts == (late,)
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.send(ArpSeen(fabric.hosts[late], "request", late, fabric.mac(late), RINGS[1][0]))
    fabric.run(1)
    assert fabric.job("job1").missing_hosts == ()


def test_links_that_come_are_used_when_no_more_come() -> None:
    """Thousands of links are added when a fabric is found.

    The ports of two cables are up, and no probe has arrived yet."""
    fabric = FakeFabric()
    peers = fabric.switches[Dpid(1)].peers
    cables = [(PortRef(Dpid(1), PortNo(port)), peers[PortNo(port)]) for port in (2, 3)]
    for at, _ in cables:
        peers[at.port] = None
    started(fabric, 0)
    fabric.forget_mods()
    for at, to in cables:
        assert to
        fabric.send(LinkSeen(at, to))
        fabric.send(LinkSeen(to, at))
        fabric.run(0.1)
        assert fabric.mods == []
    fabric.run(0.2)
    assert any(isinstance(mod.rule, GroupRule) for mod in fabric.mods)


def test_routes_leave_a_link_whose_probes_stop() -> None:
    """The ports of the link stay up."""
    fabric = started(FakeFabric(), 0)
    route = fabric.job("job0").routes[FlowId(RINGS[0][0], RINGS[0][1])]
    assert route
    link = fabric.loop.fabric.links[route[0].path[0]]
    fabric.send(LinkLost(link.src, link.dst))
    assert link.id not in fabric.loop.fabric.links
    now = fabric.job("job0").routes.values()
    assert not {link.id, LinkId(*link.dst)} & {link for route in now for path, _ in route or () for link in path}
    assert all(now)


def test_counters_of_a_switch_that_returns_begin_anew() -> None:
    fabric = started(FakeFabric())
    for total in (1000, 2000):
        fabric.run(2)
        fabric.count({UPLINK: total}, {})
    assert fabric.status.links[LinkId(*UPLINK)].bytes_total == 2000
    fabric.lose(UPLINK.dpid)
    fabric.run(5)
    fabric.connect(UPLINK.dpid)
    fabric.run(5)
    assert LinkId(*UPLINK) in fabric.status.fabric.links
    assert LinkId(*UPLINK) not in fabric.status.links, "it is not counted yet"
    fabric.count({UPLINK: 300}, {})
    again = fabric.status.links[LinkId(*UPLINK)]
    assert (again.bytes_total, again.rate_bps, again.background_bps) == (300, None, None)


def pinned(fabric: FakeFabric) -> Iterator[FlowKey]:
    """Yield the table rows of pins, on any switch."""
    for switch in fabric.switches.values():
        yield from (key for key in switch.flows if key.table == Table.PINNED and key.match.ip_src)


def test_switches_are_out_of_sync_until_the_pins_of_jobs_that_have_gone_are_taken_away() -> None:
    """The removal waits a moment when rules have just been made for another job."""
    fabric = started(FakeFabric(leaves=4, spines=2, hosts_per_leaf=1))
    for number, leaves in enumerate(((1, 2), (3, 4))):
        fabric.send(RegisterJob(ring_job(f"job{number}", [f"10.0.{leaf}.1" for leaf in leaves])))
    fabric.run(3)
    assert all(switch.in_sync for switch in fabric.status.switches.values())
    fabric.send(RegisterJob(ring_job("job1", ["10.0.3.1", "10.0.4.1"]), take_over=True))
    assert all(switch.in_sync for switch in fabric.status.switches.values()), "its pins stay as they are"
    fabric.send(DeregisterJob(JobId("job0")))
    fabric.send(DeregisterJob(JobId("job1")))
    out_of_sync = {dpid for dpid, switch in fabric.status.switches.items() if not switch.in_sync}
    assert {Dpid(3), Dpid(4)} <= out_of_sync, "where the pins of the second job are"
    assert not {Dpid(1), Dpid(2)} & out_of_sync
    fabric.run(0.3)
    assert all(switch.in_sync for switch in fabric.status.switches.values())
    assert fabric.status.pins == 0
