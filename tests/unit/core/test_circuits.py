"""Jobs on servers that are connected to optical switches, on fake switches: circuits are made, used, kept and moved."""

from __future__ import annotations

from itertools import permutations

import pytest

from controller.alarms import text
from controller.core.circuits import CircuitState
from controller.core.messages import Command, Message
from controller.core.wired_jobs import NOT_KNOWN, RAILS
from controller.fabric.cabling import cabling_of
from controller.fabric.messages import ArpSeen, LinkLost, LinkSeen, PortChanged
from controller.fabric.topology import Dpid, LinkId, Port, PortNo, PortRef
from controller.jobs.messages import (
    DeregisterJob,
    RegisterJob,
    ReportIterations,
    SaveState,
    StateNotSaved,
    UpdateJob,
)
from controller.tables.cross_connects import PRIORITY, cross_connects
from controller.tables.messages import SwitchRules
from controller.tables.rules import FlowKey, FlowRule, Match, Table
from controller.wiring.messages import FoundWiring, MendWiring, WiringFound
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.words import AlarmKind
from tests.support.optical_fabric import OpticalFabric, all_reduce, answered, config


def started(servers: int, interfaces: int) -> OpticalFabric:
    fabric = OpticalFabric(servers, interfaces)
    fabric.start()
    fabric.run(3)
    return fabric


def reach(fabric: OpticalFabric, servers: list[int]) -> bool:
    pairs = permutations([f"10.0.{n}.1" for n in servers], 2)
    return all(fabric.trace(src, dst, entropy) for src, dst in pairs for entropy in range(3))


def test_a_job_gets_circuits_and_is_pinned_on_them() -> None:
    fabric = started(6, 2)
    assert not fabric.circuits
    assert not fabric.status.alarms
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4, 5, 6])))
    fabric.run(2)
    assert len(fabric.circuits) == 12
    assert reach(fabric, [1, 2, 3, 4, 5, 6])
    job = fabric.status.jobs[JobId("one")]
    assert (job.state, job.unwired, job.level) == ("pinned", "", 1.0)
    assert job.registration.wiring
    assert len(job.registration.wiring.runs.groups) == 3
    assert not fabric.status.alarms


def test_a_job_waits_until_all_of_its_circuits_are_links() -> None:
    """Probes find some before others. Flows between those would be planned, and the others said to have no path."""
    fabric = started(4, 2)
    fabric.lost_probes = {ref(3, 2)}
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4], all_to_all=10_000)))
    for _ in range(20):
        fabric.run(0.1)
        assert fabric.status.jobs[JobId("one")].state == "pending"
        assert not fabric.status.alarms
    fabric.lost_probes = set()
    fabric.probe(fabric.switches[Dpid(3)])
    fabric.run(0.5)
    assert fabric.status.jobs[JobId("one")].state == "pinned"
    fabric.lost_probes = {ref(n, port) for n in (1, 2, 4) for port in (2, 3)}
    fabric.send(DeregisterJob(JobId("one")))
    fabric.send(RegisterJob(all_reduce("two", [1, 2, 4])))
    fabric.run(4)
    assert fabric.status.jobs[JobId("two")].state == "pending"
    fabric.run(4)
    assert fabric.status.jobs[JobId("two")].state != "pending", "what does not come is not waited for for ever"


def test_another_job_is_wired_beside_it_without_a_packet_lost() -> None:
    fabric = started(9, 3)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4], all_to_all=100_000)))
    fabric.run(2)
    before = fabric.circuits
    checks = []

    def check() -> None:
        checks.append(reach(fabric, [1, 2, 3, 4]))

    fabric.after_each_mod = check
    fabric.send(RegisterJob(all_reduce("two", [5, 6, 7, 8, 9])))
    fabric.run(2)
    assert checks
    assert all(checks)
    assert before.items() < fabric.circuits.items()
    assert reach(fabric, [5, 6, 7, 8, 9])
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    assert not fabric.status.alarms


def test_a_job_waits_until_its_servers_are_free_and_takes_their_circuits_over() -> None:
    fabric = started(7, 2)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4])))
    fabric.run(2)
    fabric.send(RegisterJob(all_reduce("two", [4, 5, 6])))
    fabric.send(RegisterJob(all_reduce("three", [6, 7])))
    fabric.run(2)
    waiting = fabric.status.jobs[JobId("two")]
    assert (waiting.state, waiting.unwired) == ("pending", "waits for servers of one")
    assert fabric.status.jobs[JobId("three")].unwired == "waits for servers of two"
    assert not fabric.status.alarms
    circuits = fabric.circuits
    fabric.send(DeregisterJob(JobId("one")))
    fabric.run(0.1)
    kept = {src: dst for src, dst in circuits.items() if src[0] in (1, 2, 3) and dst[0] in (1, 2, 3)}
    fabric.run(2)
    assert fabric.status.jobs[JobId("two")].state == "pinned"
    assert kept.items() <= fabric.circuits.items()
    assert reach(fabric, [4, 5, 6])
    assert not fabric.status.alarms
    fabric.send(DeregisterJob(JobId("two")))
    fabric.run(2)
    assert fabric.status.jobs[JobId("three")].state == "pinned"


def test_a_job_that_forwards_too_much_is_refused_with_the_alternative() -> None:
    fabric = started(8, 1)
    fabric.send(RegisterJob(all_reduce("even", [1, 2, 3, 4, 5, 6, 7, 8], all_to_all=10_000_000)))
    fabric.run(2)
    job = fabric.status.jobs[JobId("even")]
    assert job.state == "pending"
    assert job.unwired.startswith("one switch with 0.0015625 Gbit/s per server is better: ")
    assert not fabric.circuits
    fabric.run(5)
    assert len(fabric.asked) == 1


def neighbours_in_rings(fabric: OpticalFabric) -> set[tuple[int, int]]:
    """Of job one: servers of which the second receives from the first in a ring."""
    job = fabric.status.jobs[JobId("one")]
    assert job.registration.wiring
    rings = [group.ranks for group in job.registration.wiring.runs.groups if group.name.startswith("ring")]
    assert rings
    return {(src + 1, dst + 1) for ring in rings for src, dst in zip(ring, [*ring[1:], ring[0]], strict=True)}


def direct(fabric: OpticalFabric) -> set[tuple[int, int]]:
    return {(src, dst) for (src, _), (dst, _) in fabric.circuits.items()}


def test_a_lost_fibre_is_routed_around_at_once_and_replaced_between_two_iterations() -> None:
    fabric = started(6, 3)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4, 5, 6], all_to_all=10_000)))
    fabric.run(2)
    assert neighbours_in_rings(fabric) <= direct(fabric)
    fabric.send(ReportIterations(JobId("one"), (IterationTime(0, 1.0, 1.0),)))
    fabric.set_carrier(2, 3, up=False)
    assert reach(fabric, [1, 2, 3, 4, 5, 6])
    before = fabric.circuits
    fabric.run(3)
    assert fabric.circuits == before
    assert fabric.status.jobs[JobId("one")].state == "pinned"
    lost = []
    fabric.after_each_mod = lambda: lost.append(not reach(fabric, [1, 2, 3, 4, 5, 6]))
    fabric.send(ReportIterations(JobId("one"), (IterationTime(1, 1.0, 1.0),)))
    fabric.run(2)
    assert lost
    assert not any(lost)
    assert fabric.circuits != before
    assert len(neighbours_in_rings(fabric) - direct(fabric)) <= 1
    assert fabric.status.jobs[JobId("one")].state == "pinned"
    fabric.after_each_mod = lambda: None
    fabric.set_carrier(2, 3, up=True)
    fabric.run(8)
    assert len(fabric.asked) == 2


def test_a_patch_panel_keeps_the_circuits_of_a_job() -> None:
    fabric = OpticalFabric(6, 3)
    settings = config(6, 3)
    circuits = settings.circuits.model_copy(update={"fixed": True})
    fabric.start(settings.model_copy(update={"circuits": circuits}))
    fabric.run(3)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4, 5, 6])))
    fabric.run(2)
    fabric.set_carrier(2, 3, up=False)
    before = fabric.circuits
    fabric.run(5)
    assert fabric.circuits == before
    assert reach(fabric, [1, 2, 3, 4, 5, 6])


def test_a_circuit_without_light_one_way_is_replaced() -> None:
    fabric = started(4, 2)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4])))
    fabric.run(2)
    (src, dst), *_ = sorted(fabric.circuits.items())
    fabric.send(LinkLost(ref(*src), ref(*dst)))
    fabric.run(8)
    wiring = fabric.status.jobs[JobId("one")].registration.wiring
    assert wiring
    assert (ref(*src), ref(*dst)) not in wiring.circuits
    assert reach(fabric, [1, 2, 3, 4])


def test_fibres_that_are_not_as_configured_are_told() -> None:
    fabric = started(4, 2)
    one, two = (fabric.switches[Dpid(n)].peers for n in (1, 2))
    one[PortNo(2)], two[PortNo(2)] = two[PortNo(2)], one[PortNo(2)]
    for number, server in ((1, 2), (2, 1)):  # ports 1 and 2 of optical1 are exchanged
        fabric.switches[Dpid(0x101)].peers[PortNo(number)] = ref(server, 2)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4])))
    fabric.run(6)
    told = [alarm for alarm in fabric.status.alarms.values() if alarm.kind is AlarmKind.INTERFACE_DARK]
    assert any("their fibres are not as configured" in text(alarm) for alarm in told)


def test_what_others_take_away_is_made_again() -> None:
    fabric = started(4, 2)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4])))
    fabric.run(2)
    before = fabric.circuits
    (src, dst), *_ = sorted(before.items())
    fibre = fabric.switches[Dpid(src[0])].peers[PortNo(src[1])]
    assert fibre
    mirrors = fabric.switches[fibre.dpid]
    mirrors.flows = {key: rule for key, rule in mirrors.flows.items() if key.match.in_port != fibre.port}
    assert fabric.circuits != before
    fabric.send(LinkLost(ref(*src), ref(*dst)))
    fabric.run(2)
    assert fabric.circuits == before
    assert fabric.status.jobs[JobId("one")].state == "pinned"
    assert len(fabric.asked) == 1


def test_an_update_that_changes_no_traffic_keeps_the_circuits_and_another_does_not() -> None:
    fabric = started(4, 2)
    spec = all_reduce("one", [1, 2, 3, 4])
    fabric.send(RegisterJob(spec))
    fabric.run(2)
    before = fabric.circuits
    fabric.send(UpdateJob(spec.model_copy(update={"lease_s": 90.0})))
    fabric.run(2)
    job = fabric.status.jobs[JobId("one")]
    assert job.registration.wiring
    assert (job.state, job.registration.wiring.runs.lease_s) == ("pinned", 90.0)
    assert (fabric.circuits, len(fabric.asked)) == (before, 1)
    fabric.send(UpdateJob(all_reduce("one", [1, 2, 3, 4], all_to_all=500_000)))
    fabric.run(2)
    assert fabric.status.jobs[JobId("one")].state == "pinned"
    assert len(fabric.asked) == 2


def test_an_optical_switch_that_has_lost_its_rules_gets_them_again() -> None:
    fabric = started(4, 2)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4])))
    fabric.run(2)
    before = fabric.circuits
    fabric.lose(Dpid(0x101))
    assert fabric.circuits == before
    fabric.switches[Dpid(0x101)].forget_rules()
    fabric.reconnect(0x101)
    fabric.run(2)
    assert fabric.circuits == before
    assert fabric.status.jobs[JobId("one")].state == "pinned"


def test_probes_that_came_before_an_optical_switch_was_read_count() -> None:
    fabric = started(4, 2)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4])))
    fabric.run(2)
    fabric.send(DeregisterJob(JobId("one")))
    fabric.run(1)
    mirrors = [Dpid(0x101), Dpid(0x102)]
    fabric.start(late=mirrors)
    for switch in fabric.switches.values():
        for at in (PortRef(switch.dpid, port) for port in switch.peers if switch.dpid not in mirrors):
            if dst := fabric.arrives(at):
                fabric.send(LinkSeen(at, dst))
    fabric.run(1)
    assert not fabric.status.fabric.links
    for dpid in mirrors:
        fabric.reconnect(dpid)
    fabric.run(1)
    assert len(fabric.status.fabric.links) == 8


def test_a_job_is_not_told_to_be_without_paths_before_its_wiring_is_saved() -> None:
    fabric = started(4, 2)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4])))
    fabric.wirings_wait = True
    fabric.run(1)
    fabric.disk_error = "full"
    fabric.send(answered(fabric.asked[-1]))
    fabric.run(1)
    job = fabric.status.jobs[JobId("one")]
    assert (job.state, job.flows_without_path) == ("pending", 0)
    fabric.disk_error = ""
    fabric.run(10)
    assert fabric.status.jobs[JobId("one")].state == "pinned"


def test_what_went_wrong_is_tried_again() -> None:
    fabric = started(4, 2)
    fabric.wirings_wait = True
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4])))
    fabric.run(1)
    (asked,) = fabric.asked
    fabric.send(WiringFound(asked, "the process has ended"))
    fabric.run(10)
    assert fabric.status.jobs[JobId("one")].unwired == "the process has ended"
    fabric.wirings_wait = False
    fabric.run(25)
    assert fabric.status.jobs[JobId("one")].state == "pinned"


def test_what_a_job_sends_has_to_be_known() -> None:
    fabric = started(4, 2)
    rails = ({"endpoints": ("10.1.1.1", "10.1.2.1")},)
    fabric.send(RegisterJob(JobSpec.parse(all_reduce("rails", [3, 4]).model_dump() | {"rails": rails})))
    fabric.send(RegisterJob(JobSpec(job_id="silent", endpoints=("10.0.1.1", "10.0.2.1"))))
    fabric.run(40)
    assert fabric.status.jobs[JobId("silent")].unwired == NOT_KNOWN
    assert fabric.status.jobs[JobId("rails")].unwired == RAILS
    assert not fabric.asked
    fabric.send(RegisterJob(all_reduce("one", [1, 2])))
    fabric.run(4)
    assert fabric.status.jobs[JobId("one")].state == "pinned"


def test_a_job_begins_on_the_routes_that_were_found_with_its_circuits(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = started(6, 2)
    fabric.wirings_wait = True
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4, 5, 6], all_to_all=100_000)))
    fabric.run(1)
    answer = answered(fabric.asked[-1])
    assert isinstance(answer.found, FoundWiring)
    placed = {
        flow: [[(f"10.0.{at.server + 1}.1", at.interface) for at in path] for path, _ in pieces]
        for flow, pieces in answer.found.routes.items()
    }
    assert len(placed) == 30
    monkeypatch.setattr(fabric.planner, "answers", lambda _: [])
    fabric.send(answer)
    fabric.run(1)
    assert fabric.status.jobs[JobId("one")].state == "pinned"
    running = {
        flow: [[(f"10.0.{link.dpid}.1", link.port - 2) for link in path] for path, _ in route]
        for flow, route in fabric.loop.state.routes.routes.items()
    }
    assert running == placed


def test_an_optical_switch_that_refuses_is_told_again_after_a_while() -> None:
    fabric = started(4, 2)
    mirrors = fabric.switches[Dpid(0x102)]
    refused = FlowKey(Table.CONTROL, PRIORITY, Match(in_port=PortNo(2)))
    mirrors.refuses.add(refused)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4])))
    fabric.run(4)
    assert len(fabric.circuits) == 7
    assert reach(fabric, [1, 2, 3, 4])
    assert sum(mod.rule.key == refused for mod in mirrors.mods if isinstance(mod.rule, FlowRule)) <= 3
    mirrors.refuses.clear()
    fabric.run(4)
    assert len(fabric.circuits) == 8
    assert fabric.status.jobs[JobId("one")].state == "pinned"


def test_a_question_about_lost_circuits_that_was_not_answered_is_asked_again() -> None:
    fabric = started(6, 3)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4, 5, 6])))
    fabric.run(2)
    fabric.wirings_wait = True
    fabric.set_carrier(2, 3, up=False)
    fabric.run(1)
    fabric.send(WiringFound(fabric.asked[-1], "the process has ended"))
    fabric.wirings_wait = False
    fabric.run(31)
    assert len(fabric.asked) == 3
    assert not fabric.loop.derived.damaged()


def test_circuits_that_work_again_before_the_iteration_ends_are_kept() -> None:
    fabric = started(6, 3)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4, 5, 6], lease_s=600)))
    fabric.run(2)
    before = fabric.status.jobs[JobId("one")].registration.wiring
    fabric.send(ReportIterations(JobId("one"), (IterationTime(0, 1.0, 1.0),)))
    fabric.set_carrier(2, 3, up=False)
    fabric.run(1)
    fabric.set_carrier(2, 3, up=True)
    for switch in fabric.switches.values():
        fabric.probe(switch)
    fabric.run(70)
    assert fabric.status.jobs[JobId("one")].registration.wiring == before


def test_a_server_that_is_not_connected_for_a_while_keeps_its_circuits() -> None:
    fabric = started(4, 2)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4])))
    fabric.run(2)
    before = fabric.circuits
    fabric.lose(Dpid(3))
    fabric.run(10)
    fabric.connect(Dpid(3))
    fabric.run(5)
    assert fabric.circuits == before
    assert len(fabric.asked) == 1
    assert fabric.status.jobs[JobId("one")].state == "pinned"


def test_a_job_is_wired_anew_when_a_fibre_of_it_is_not_configured_any_more() -> None:
    fabric = started(4, 2)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4])))
    fabric.run(2)
    settings = config(4, 2)
    first, second = settings.circuits.switch
    switches = (first.model_copy(update={"fibres": ("", *first.fibres[1:])}), second)
    circuits = settings.circuits.model_copy(update={"switch": switches})
    fabric.start(settings.model_copy(update={"circuits": circuits}))
    fabric.run(30)
    job = fabric.status.jobs[JobId("one")]
    assert job.registration.wiring
    assert ref(1, 2) not in {at for circuit in job.registration.wiring.circuits for at in circuit}
    assert job.state == "pinned"


def test_a_job_is_wired_anew_when_a_host_has_moved() -> None:
    fabric = started(5, 2)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4])))
    fabric.run(2)
    hosts = fabric.hosts
    hosts["10.0.4.1"] = hosts.pop("10.0.5.1")
    fabric.send(PortChanged(Dpid(4), Port(PortNo(1), "server4-eth1", fabric.mac("10.0.4.1"), False, 10e9)))
    fabric.send(ArpSeen(hosts["10.0.4.1"], "reply", "10.0.4.1", fabric.mac("10.0.4.1"), "0.0.0.0"))
    fabric.run(5)
    assert {dst for _, dst in direct(fabric)} >= {1, 2, 3, 5}
    assert fabric.status.jobs[JobId("one")].state == "pinned"
    assert reach(fabric, [1, 2, 3, 4])


def test_servers_are_not_free_before_the_end_of_their_job_is_saved() -> None:
    fabric = SlowDisk(6, 2)
    fabric.start()
    fabric.run(3)
    for spec in (all_reduce("one", [1, 2, 3, 4]), all_reduce("two", [4, 5, 6])):
        fabric.send(RegisterJob(spec))
    fabric.run(2)
    fabric.disk_waits = True
    fabric.send(DeregisterJob(JobId("one")))
    fabric.run(1)
    assert len(fabric.asked) == 1
    fabric.disk_waits = False
    fabric.send(StateNotSaved("full"))
    fabric.run(2)
    assert {job_id: job.unwired for job_id, job in fabric.status.jobs.items()} == {
        "one": "",
        "two": "waits for servers of one",
    }
    assert len(set(fabric.circuits.values())) == len(fabric.circuits) == 8


class SlowDisk(OpticalFabric):
    disk_waits = False

    def _carry_out(self, command: Command) -> list[Message]:
        return [] if self.disk_waits and isinstance(command, SaveState) else super()._carry_out(command)


def test_a_job_is_asked_about_anew_when_other_interfaces_work() -> None:
    fabric = started(8, 3)
    for port in (3, 4):
        fabric.set_carrier(1, port, up=False)
    fabric.send(RegisterJob(all_reduce("even", [1, 2, 3, 4, 5, 6, 7, 8], all_to_all=10_000_000)))
    fabric.run(2)
    assert fabric.status.jobs[JobId("even")].unwired.startswith("one switch with 0.0015625 Gbit/s")
    for port in (3, 4):
        fabric.set_carrier(1, port, up=True)
    fabric.run(2)
    assert not fabric.status.jobs[JobId("even")].unwired.startswith("one switch with 0.0015625 Gbit/s")


def test_packets_that_are_queued_have_time_to_leave_after_the_last_rule_is_confirmed() -> None:
    circuits = CircuitState(cabling_of({(9, 1): (1, 2), (9, 2): (2, 2)}), dark_s=0.01, drain_s=0.1)
    circuits.connected(Dpid(9), "optical", ())
    held = cross_connects({PortNo(1): PortNo(1), PortNo(2): PortNo(2)})
    circuits.rules_read(SwitchRules(Dpid(9), held, 0), 0.0)
    circuits.own({ref(1, 2): ref(2, 2)})
    circuits.begin({LinkId(Dpid(1), PortNo(2))}, 0.0)
    assert not circuits.send(now=5.0)
    assert circuits.send(now=5.2)


def test_of_two_circuits_that_others_have_made_to_one_port_one_stays() -> None:
    fabric = started(4, 1)
    mirrors = fabric.switches[Dpid(0x101)]
    for rule in cross_connects({PortNo(1): PortNo(3), PortNo(2): PortNo(3)}).flows.values():
        mirrors.flows[rule.key] = rule
    fabric.reconnect(0x101)
    fabric.run(2)
    assert len(fabric.circuits) == 1


def test_no_rule_leads_to_a_circuit_before_it_goes_dark() -> None:
    """Also where it was the last way to a server: the next one may lead back."""
    fabric = started(4, 1)
    stale: list[PortRef] = []

    def check() -> None:
        change = fabric.loop.state.circuits.change
        if change and change.sent_at is not None:
            for at in change.dark:
                groups = fabric.switches[at.dpid].groups.values()
                stale.extend(at for group in groups for bucket in group.buckets if bucket.watch_port == at.port)

    fabric.after_each_mod = check
    for job_id, servers in (("one", [1, 2, 3, 4]), ("two", [1, 3])):
        fabric.send(RegisterJob(all_reduce(job_id, servers)))
        fabric.run(2)
        fabric.send(DeregisterJob(JobId(job_id)))
        fabric.run(1)
    assert len(fabric.asked) == 2
    assert not stale


def test_where_probes_arrived_before_a_circuit_was_changed_says_nothing_after_it() -> None:
    fabric = started(4, 1)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4])))
    fabric.run(2)
    fabric.send(DeregisterJob(JobId("one")))
    fabric.run(1)
    before = fabric.circuits

    def probe() -> None:
        change = fabric.loop.state.circuits.change
        if change and change.sent_at is not None:
            for src, dst in before.items():
                fabric.loop.handle([LinkSeen(ref(*src), ref(*dst))], fabric.now)

    fabric.after_each_mod = probe
    fabric.send(RegisterJob(all_reduce("two", [1, 3])))
    fabric.run(2)
    fabric.after_each_mod = lambda: None
    fabric.run(2)
    assert fabric.circuits != before
    assert not fabric.status.alarms


def ref(dpid: int, port: int) -> PortRef:
    return PortRef(Dpid(dpid), PortNo(port))


def test_a_controller_that_is_killed_in_a_change_is_followed_by_one_that_completes_it() -> None:
    for instant in range(20):
        fabric = started(6, 3)
        fabric.send(RegisterJob(all_reduce("one", [1, 2, 3])))
        fabric.run(2)
        killed = Killed(instant)
        fabric.after_each_mod = killed
        try:
            fabric.send(RegisterJob(all_reduce("two", [4, 5, 6], all_to_all=100_000)))
            fabric.run(2)
        except InterruptedError:
            pass
        fabric.after_each_mod = lambda: None
        assert reach(fabric, [1, 2, 3])
        fabric.start()
        fabric.run(20)
        assert reach(fabric, [1, 2, 3])
        assert reach(fabric, [4, 5, 6])
        assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
        wirings = [job.registration.wiring for job in fabric.status.jobs.values()]
        owned = {
            ((int(src.dpid), int(src.port)), (int(dst.dpid), int(dst.port)))
            for wiring in wirings
            if wiring
            for src, dst in wiring.circuits
        }
        assert owned == set(fabric.circuits.items())
        fabric.count_rules({}, {}, of=[Dpid(n) for n in range(1, 7)])
        assert not fabric.status.alarms


class Killed:
    """Ends the controller after so many changes of rules."""

    def __init__(self, after: int) -> None:
        self._left = after

    def __call__(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise InterruptedError


def test_an_optical_switch_that_is_not_connected_raises_an_alarm_after_a_while() -> None:
    fabric = started(4, 2)
    fabric.lose(Dpid(0x102))
    fabric.run(5)
    assert not fabric.status.alarms
    fabric.run(12)
    assert text(fabric.status.alarms[AlarmKind.SWITCH_DOWN, "optical2"]) == "switch optical2 (0x102) is down"
    fabric.reconnect(0x102)
    fabric.run(1)
    assert (AlarmKind.SWITCH_DOWN, "optical2") not in fabric.status.alarms


def test_nothing_new_is_made_at_an_optical_switch_that_is_away() -> None:
    fabric = started(6, 3)
    fabric.lose(Dpid(0x102))
    fabric.run(17)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4], all_to_all=10_000, lease_s=600)))
    fabric.run(3)
    assert fabric.status.jobs[JobId("one")].state == "pinned"
    assert {port for _, port in fabric.circuits} == {2, 4}
    fabric.reconnect(0x102)
    fabric.send(RegisterJob(all_reduce("two", [5, 6], lease_s=600)))
    fabric.run(3)
    assert {port for server, port in fabric.circuits if server > 4} == {2, 3, 4}


@pytest.mark.parametrize("wait_s", [1, 16])
def test_circuits_that_are_lost_at_an_optical_switch_that_is_away_are_not_made_there_again(wait_s: int) -> None:
    fabric = started(6, 3)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3, 4, 5, 6], all_to_all=10_000, lease_s=600)))
    fabric.run(2)
    fabric.lose(Dpid(0x102))
    fabric.run(wait_s)
    gone = {src: dst for src, dst in fabric.circuits.items() if src[1] == 3}
    fabric.switches[Dpid(0x102)].flows.clear()
    for (server, port), (peer, to) in gone.items():
        fabric.send(LinkLost(ref(server, port), ref(peer, to)))
    fabric.run(30)
    question = [asked for asked in fabric.asked if isinstance(asked, MendWiring)][-1]
    assert len(question.dead) == 6
    wiring = fabric.status.jobs[JobId("one")].registration.wiring
    assert wiring
    assert {src.port for src, _ in wiring.circuits} == {2, 4}
    assert reach(fabric, [1, 2, 3, 4, 5, 6])
