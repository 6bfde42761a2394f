"""Lost circuits of a job, on fake switches: packets avoid them, and the circuits are replaced or kept."""

from __future__ import annotations

from itertools import product

import pytest

from controller.alarms import text
from controller.circuits.questions import MendWiring
from controller.core.messages import Message, WorkedOut
from controller.fabric.messages import ArpSeen, LinkLost, PortChanged
from controller.fabric.topology import Dpid, Port, PortNo, PortRef
from controller.jobs.messages import ReportIterations
from controller.planning.messages import PlanningRequest
from controller.planning.plan import Planned
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind
from tests.support.optical_fabric import OpticalFabric, config, reach, ref, started, wired, with_job


def neighbours_in_rings(fabric: OpticalFabric) -> set[tuple[int, int]]:
    """Return the (sender, receiver) pairs of neighbouring servers in the rings of the job ``one``."""
    rings = [group.ranks for group in wired(fabric.job()).runs.groups if group.name.startswith("ring")]
    assert rings
    return {(src + 1, dst + 1) for ring in rings for src, dst in zip(ring, [*ring[1:], ring[0]], strict=True)}


def direct(fabric: OpticalFabric) -> set[tuple[int, int]]:
    return {(src, dst) for (src, _), (dst, _) in fabric.circuits.items()}


def test_a_lost_fibre_is_routed_around_at_once_and_replaced_between_two_iterations() -> None:
    fabric = with_job(6, 3)
    assert neighbours_in_rings(fabric) <= direct(fabric)
    fabric.send(ReportIterations(JobId("one"), (IterationTime(0, 1.0, 1.0),)))
    fabric.set_carrier(2, 3, up=False)
    assert reach(fabric, [1, 2, 3, 4, 5, 6])
    before = fabric.circuits
    fabric.run(3)
    assert fabric.circuits == before
    assert fabric.job().state == "pinned"
    lost = []
    fabric.after_each_mod = lambda: lost.append(not reach(fabric, [1, 2, 3, 4, 5, 6]))
    fabric.send(ReportIterations(JobId("one"), (IterationTime(1, 1.0, 1.0),)))
    fabric.run(2)
    assert lost
    assert not any(lost)
    assert fabric.circuits != before
    assert len(neighbours_in_rings(fabric) - direct(fabric)) <= 1
    assert fabric.job().state == "pinned"
    fabric.after_each_mod = lambda: None
    fabric.set_carrier(2, 3, up=True)
    fabric.run(8)
    assert len(fabric.asked) == 2


def test_detours_around_circuits_end_when_others_are_there_and_not_with_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fabric = with_job(6, 3, all_to_all=10_000)
    answers = fabric.planner.answers

    def repairs(request: PlanningRequest) -> list[Message]:
        """Return only the repair, like a planner whose plans take long."""
        return [answer for answer in answers(request) if not isinstance(answer, Planned) or answer.repair]

    monkeypatch.setattr(fabric.planner, "answers", repairs)
    for server in (2, 5):
        fabric.set_carrier(server, 3, up=False)
        fabric.run(3)
        assert fabric.job().state == "pinned"


def test_the_time_of_an_iteration_is_that_on_the_circuits_there_are() -> None:
    fabric = with_job(5, 3)
    before = wired(fabric.job())
    assert before.planned_s == pytest.approx(before.bound_s)
    for server in (2, 5):
        fabric.set_carrier(server, 3, up=False)
        fabric.run(5)
    wiring = wired(fabric.job())
    assert len(wiring.circuits) < len(before.circuits)
    assert wiring.planned_s >= wiring.bound_s > before.bound_s
    for name in ("other_s", "parallelization", "runs"):
        assert getattr(wiring, name) == getattr(before, name)


def test_a_patch_panel_keeps_the_circuits_of_a_job() -> None:
    settings = config(4, 3)
    circuits = settings.circuits.model_copy(update={"fixed": True})
    fabric = started(4, 3, settings.model_copy(update={"circuits": circuits}))
    fabric.register("one", [1, 2, 3, 4])
    fabric.set_carrier(2, 3, up=False)
    before = fabric.circuits
    fabric.run(5)
    assert fabric.circuits == before
    assert reach(fabric, [1, 2, 3, 4])


def test_a_circuit_without_light_one_way_is_replaced_and_told_until_its_ends_are_heard() -> None:
    fabric = with_job(4, 2)
    (src, dst), *_ = sorted(fabric.circuits.items())
    fabric.lost_probes.add(ref(*src))
    fabric.send(LinkLost(ref(*src), ref(*dst)))
    fabric.run(8)
    assert (ref(*src), ref(*dst)) not in wired(fabric.job()).circuits
    assert reach(fabric, [1, 2, 3, 4])
    fabric.run(60)
    assert AlarmKind.INTERFACE_DARK in {kind for kind, _ in fabric.status.alarms}
    fabric.lost_probes.clear()
    fabric.probe(fabric.switches[Dpid(src[0])])  # sent once a second; the ports are free, so the circuit is made
    fabric.run(2)
    assert AlarmKind.INTERFACE_DARK not in {kind for kind, _ in fabric.status.alarms}


def swap_fibres(fabric: OpticalFabric, one: PortRef, other: PortRef) -> None:
    """Exchange the fibres of two interfaces."""
    ends = [fabric.switches[at.dpid].peers[at.port] for at in (one, other)]
    for at, end in ((one, ends[1]), (other, ends[0])):
        assert end
        fabric.switches[at.dpid].peers[at.port] = end
        fabric.switches[end.dpid].peers[end.port] = at


def dark_interfaces(fabric: OpticalFabric) -> dict[str, str]:
    alarms = fabric.status.alarms.values()
    return {alarm.subject: text(alarm) for alarm in alarms if alarm.kind is AlarmKind.INTERFACE_DARK}


@pytest.mark.parametrize("other", [ref(2, 2), ref(1, 3)])
def test_fibres_that_are_swapped_are_told_as_such_whatever_circuits_there_are(other: PortRef) -> None:
    fabric = started(5, 2)
    swap_fibres(fabric, ref(1, 2), other)
    fabric.register("one", [1, 2, 3, 4, 5], lease_s=600, run_s=4)
    told = dark_interfaces(fabric)
    assert set(told) == {"server1:2", f"server{other.dpid}:{other.port}"}
    as_configured = f"port {other.dpid} of optical{other.port - 1}"
    assert told["server1:2"] == (
        f"server1:2 may be connected to {as_configured}, and server{other.dpid}:{other.port} to port 1 of optical1: "
        "probes arrive as if their fibres were swapped"
    )
    before, changes = fabric.circuits, fabric.extension.optical.change_times
    for _ in range(50):  # the job gets other circuits in place of those that seem lost
        fabric.run(0.5)
        assert dark_interfaces(fabric) == told
    assert fabric.circuits != before
    assert fabric.extension.optical.change_times != changes
    swap_fibres(fabric, ref(1, 2), other)
    for at, up in product((ref(1, 2), other), (False, True)):
        fabric.set_carrier(at.dpid, at.port, up)
    fabric.probe_all()
    fabric.run(10)
    assert not dark_interfaces(fabric)


def test_an_interface_that_failed_before_gets_no_circuit_when_another_one_fails() -> None:
    fabric = with_job(5, 3)
    for server in (5, 2):
        fabric.set_carrier(server, 4, up=False)
        fabric.run(3)
    assert len(fabric.asked) == 3, "one question for the job, and one for each interface"
    ends = {at for circuit in wired(fabric.job()).circuits for at in circuit}
    assert ends.isdisjoint((ref(5, 4), ref(2, 4)))
    assert fabric.job().state == "pinned"


def test_a_question_about_lost_circuits_that_was_not_answered_is_asked_again() -> None:
    fabric = with_job(6, 3)
    fabric.wirings_wait = True
    fabric.set_carrier(2, 3, up=False)
    fabric.run(1)
    fabric.send(WorkedOut(fabric.asked[-1], "the process has ended"))
    fabric.wirings_wait = False
    fabric.run(31)
    assert len(fabric.asked) == 3
    assert not fabric.extension.damaged()


def test_circuits_that_work_again_before_the_iteration_ends_are_kept() -> None:
    fabric = with_job(6, 3, lease_s=600)
    before = wired(fabric.job())
    fabric.send(ReportIterations(JobId("one"), (IterationTime(0, 1.0, 1.0),)))
    fabric.set_carrier(2, 3, up=False)
    fabric.run(1)
    fabric.set_carrier(2, 3, up=True)
    fabric.probe_all()
    fabric.run(70)
    assert wired(fabric.job()) == before


def test_a_server_that_is_not_connected_for_a_while_keeps_its_circuits() -> None:
    fabric = with_job(4, 2)
    before = fabric.circuits
    fabric.lose(Dpid(3))
    fabric.run(10)
    fabric.connect(Dpid(3))
    fabric.run(5)
    assert fabric.circuits == before
    assert len(fabric.asked) == 1
    assert fabric.job().state == "pinned"


def test_a_job_is_wired_anew_when_a_fibre_of_it_is_not_configured_any_more() -> None:
    fabric = with_job(4, 2)
    settings = config(4, 2)
    first, second = settings.circuits.switch
    switches = (first.model_copy(update={"fibres": ("", *first.fibres[1:])}), second)
    circuits = settings.circuits.model_copy(update={"switch": switches})
    fabric.start(settings.model_copy(update={"circuits": circuits}))
    fabric.run(30)
    assert ref(1, 2) not in {at for circuit in wired(fabric.job()).circuits for at in circuit}
    assert fabric.job().state == "pinned"


def test_a_job_is_wired_anew_when_a_host_has_moved() -> None:
    fabric = started(5, 2)
    fabric.register("one", [1, 2, 3, 4])
    hosts = fabric.hosts
    hosts["10.0.4.1"] = hosts.pop("10.0.5.1")
    fabric.send(PortChanged(Dpid(4), Port(PortNo(1), "server4-eth1", fabric.mac("10.0.4.1"), False, 10e9)))
    fabric.send(ArpSeen(hosts["10.0.4.1"], "reply", "10.0.4.1", fabric.mac("10.0.4.1"), "0.0.0.0"))
    fabric.run(5)
    assert {dst for _, dst in direct(fabric)} >= {1, 2, 3, 5}
    assert fabric.job().state == "pinned"
    assert reach(fabric, [1, 2, 3, 4])


def test_a_job_is_asked_about_anew_when_other_interfaces_work() -> None:
    fabric = started(8, 3)
    for port in (3, 4):
        fabric.set_carrier(1, port, up=False)
    fabric.register("even", [*range(1, 9)], all_to_all=10_000_000)
    assert fabric.job("even").waiting.startswith("one switch with 0.0015625 Gbit/s")
    for port in (3, 4):
        fabric.set_carrier(1, port, up=True)
    fabric.run(2)
    assert not fabric.job("even").waiting.startswith("one switch with 0.0015625 Gbit/s")


@pytest.mark.parametrize("wait_s", [1, 16])
def test_circuits_that_are_lost_at_an_optical_switch_that_is_away_are_not_made_there_again(wait_s: int) -> None:
    fabric = with_job(4, 3, lease_s=600)
    fabric.lose(Dpid(0x102))
    fabric.run(wait_s)
    gone = {src: dst for src, dst in fabric.circuits.items() if src[1] == 3}
    fabric.switches[Dpid(0x102)].flows.clear()
    for (server, port), (peer, to) in gone.items():
        fabric.send(LinkLost(ref(server, port), ref(peer, to)))
    fabric.run(30)
    question = [asked for asked in fabric.asked if isinstance(asked, MendWiring)][-1]
    assert question.fixed == {1}
    assert {src.port for src, _ in wired(fabric.job()).circuits} == {2, 4}
    assert reach(fabric, [1, 2, 3, 4])


@pytest.mark.parametrize("wait_s", [1, 16])
@pytest.mark.parametrize("port", [2, 3])
def test_what_works_at_an_optical_switch_that_is_away_goes_on_when_others_are_lost(port: int, wait_s: int) -> None:
    fabric = with_job(5, 2, lease_s=600)
    fabric.lose(Dpid(0x102))
    fabric.run(wait_s)
    fabric.set_carrier(2, port, up=False)
    left = {src: dst for src, dst in fabric.circuits.items() if src[1] == 3}
    fabric.run(30)
    kept = {(int(src.dpid), int(src.port)) for src, _ in wired(fabric.job()).circuits if src.port == 3}
    assert kept == left.keys()
    assert fabric.job().state == "pinned"
    assert reach(fabric, [1, 2, 3, 4, 5])
    assert len(fabric.asked) == 2


def test_a_job_whose_only_circuits_do_not_work_is_not_wired_again_and_again() -> None:
    fabric = started(2, 1)
    fabric.lost_probes = {ref(1, 2)}
    fabric.register("one", [1, 2], lease_s=600, run_s=200)
    assert len(fabric.asked) < 15
    fabric.lost_probes.clear()
    fabric.probe(fabric.switches[Dpid(1)])
    fabric.run(2)
    assert fabric.job().state == "pinned"
