"""Jobs on servers at optical switches, on fake switches: circuits are made, used and moved."""

from __future__ import annotations

import pytest

from controller.circuits.fibres import cabling_of
from controller.circuits.optical_switches import OpticalSwitches, cross_connects
from controller.circuits.questions import FoundWiring
from controller.circuits.wired_jobs import MAKING, NOT_KNOWN, RAILS
from controller.core.messages import Command, Message, WorkedOut
from controller.fabric.topology import Dpid, LinkId, PortNo, PortRef
from controller.jobs.messages import (
    Arrangement,
    DeregisterJob,
    RegisterJob,
    Registration,
    SavedState,
    SaveState,
    StateNotSaved,
    UpdateJob,
)
from controller.tables.messages import SwitchRules
from signalbox.errors import InvalidInput
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.optical_fabric import OpticalFabric, all_reduce, answered, reach, ref, started, wired


def test_a_job_waits_until_all_of_its_circuits_are_links() -> None:
    """Probes find some circuits before other circuits.

    Without the wait, the planner would plan flows over the found circuits while all other flows have no path."""
    fabric = started(4, 2)
    fabric.lost_probes = {ref(3, 2)}
    fabric.register("one", [1, 2, 3, 4], all_to_all=10_000, run_s=0.2)
    fabric.send(UpdateJob(all_reduce("one", [1, 2, 3, 4], all_to_all=10_000, lease_s=600)))  # changes no traffic
    for _ in range(20):
        fabric.run(0.1)
        assert (fabric.job().state, fabric.job().waiting) == ("pending", MAKING)
        assert not fabric.status.alarms
    fabric.lost_probes = set()
    fabric.probe(fabric.switches[Dpid(3)])
    fabric.run(0.5)
    assert fabric.job().state == "pinned"
    fabric.lost_probes = {ref(n, port) for n in (1, 2, 4) for port in (2, 3)}
    fabric.send(DeregisterJob(JobId("one")))
    fabric.register("two", [1, 2, 4], run_s=4)
    assert fabric.job("two").state == "pending"
    fabric.run(4)
    assert fabric.job("two").state != "pending", "what does not come is not waited for for ever"


def test_another_job_is_wired_beside_it_without_a_packet_lost() -> None:
    fabric = started(9, 3)
    fabric.register("one", [1, 2, 3, 4], all_to_all=100_000)
    before = fabric.circuits
    checks = []

    def check() -> None:
        checks.append(reach(fabric, [1, 2, 3, 4]))

    fabric.after_each_mod = check
    fabric.register("two", [5, 6, 7, 8, 9])
    assert checks
    assert all(checks)
    assert before.items() < fabric.circuits.items()
    assert reach(fabric, [5, 6, 7, 8, 9])
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    assert not fabric.status.alarms


def test_a_job_waits_until_its_servers_are_free_and_takes_their_circuits_over() -> None:
    fabric = started(7, 2)
    fabric.register("one", [1, 2, 3, 4])
    fabric.send(RegisterJob(all_reduce("two", [4, 5, 6])))
    fabric.register("three", [6, 7])
    waiting = fabric.job("two")
    assert (waiting.state, waiting.waiting) == ("pending", "waits for servers that other jobs use: one")
    assert fabric.job("three").waiting == "waits for servers that other jobs use: two"
    assert not fabric.status.alarms
    circuits = fabric.circuits
    fabric.send(DeregisterJob(JobId("one")))
    fabric.run(0.1)
    kept = {src: dst for src, dst in circuits.items() if src[0] in (1, 2, 3) and dst[0] in (1, 2, 3)}
    fabric.run(2)
    assert fabric.job("two").state == "pinned"
    assert kept.items() <= fabric.circuits.items()
    assert reach(fabric, [4, 5, 6])
    assert not fabric.status.alarms
    fabric.send(DeregisterJob(JobId("two")))
    fabric.run(2)
    assert fabric.job("three").state == "pinned"


def test_a_job_that_forwards_too_much_is_refused_with_the_alternative() -> None:
    fabric = started(8, 1)
    fabric.register("even", [1, 2, 3, 4, 5, 6, 7, 8], all_to_all=10_000_000)
    job = fabric.job("even")
    assert job.state == "pending"
    assert job.waiting.startswith("one switch with 0.0015625 Gbit/s per server is better: ")
    assert not fabric.circuits
    fabric.run(5)
    assert len(fabric.asked) == 1


def test_an_update_that_changes_no_traffic_keeps_the_circuits_and_another_does_not() -> None:
    fabric = started(4, 2)
    spec = all_reduce("one", [1, 2, 3, 4])
    fabric.send(RegisterJob(spec))
    fabric.run(2)
    before = fabric.circuits
    fabric.send(UpdateJob(spec.model_copy(update={"lease_s": 90.0})))
    fabric.run(2)
    job = fabric.job()
    assert (job.state, wired(job).runs.lease_s) == ("pinned", 90.0)
    assert (fabric.circuits, len(fabric.asked)) == (before, 1)
    fabric.send(UpdateJob(all_reduce("one", [1, 2, 3, 4], all_to_all=500_000)))
    fabric.run(2)
    assert fabric.job().state == "pinned"
    assert len(fabric.asked) == 2


def test_what_went_wrong_is_tried_again() -> None:
    """First the process that finds circuits ends, then the disk is full."""
    fabric = started(4, 2)
    fabric.wirings_wait = True
    fabric.register("one", [1, 2, 3, 4], run_s=1)
    (asked,) = fabric.asked
    fabric.send(WorkedOut(asked, "the process has ended"))
    fabric.run(10)
    assert fabric.job().waiting == "the process has ended"
    fabric.run(25)
    fabric.disk_error = "full"
    fabric.send(answered(fabric.asked[-1]))
    fabric.run(1)
    assert (fabric.job().state, fabric.job().flows_without_path) == ("pending", 0)
    fabric.disk_error = ""
    fabric.run(10)
    assert fabric.job().state == "pinned"


def test_what_a_job_sends_has_to_be_known() -> None:
    fabric = started(4, 2)
    rails = ({"endpoints": ("10.1.1.1", "10.1.2.1")},)
    fabric.send(RegisterJob(JobSpec.parse(all_reduce("rails", [3, 4]).model_dump() | {"rails": rails})))
    fabric.send(RegisterJob(JobSpec(job_id="silent", endpoints=("10.0.1.1", "10.0.2.1"))))
    fabric.run(40)
    assert fabric.job("silent").waiting == NOT_KNOWN
    assert fabric.job("rails").waiting == RAILS
    assert not fabric.asked
    fabric.register("one", [1, 2], run_s=4)
    assert fabric.job().state == "pinned"


def test_a_job_gets_circuits_and_begins_on_the_routes_that_were_found_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fabric = started(6, 2)
    fabric.wirings_wait = True
    fabric.register("one", [1, 2, 3, 4, 5, 6], all_to_all=100_000, run_s=1)
    assert not fabric.circuits
    answer = answered(fabric.asked[-1])
    assert isinstance(answer.answer, FoundWiring)
    placed = {
        flow: [[(f"10.0.{at.server + 1}.1", at.interface) for at in path] for path, _ in subflows]
        for flow, subflows in answer.answer.routes.items()
    }
    assert len(placed) == 30
    monkeypatch.setattr(fabric.planner, "answers", lambda _: [])
    fabric.send(answer)
    fabric.run(1)
    assert len(fabric.circuits) == 12
    assert reach(fabric, [1, 2, 3, 4, 5, 6])
    assert (fabric.job().state, fabric.job().waiting) == ("pinned", "")
    assert len(wired(fabric.job()).runs.groups) == 3
    assert not fabric.status.alarms
    running = {
        flow: [[(f"10.0.{link.dpid}.1", link.port - 2) for link in path] for path, _ in route]
        for flow, route in fabric.loop.state.routes.routes.items()
    }
    assert running == placed


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
    assert {job_id: job.waiting for job_id, job in fabric.status.jobs.items()} == {
        "one": "",
        "two": "waits for servers that other jobs use: one",
    }
    assert len(set(fabric.circuits.values())) == len(fabric.circuits) == 8


class SlowDisk(OpticalFabric):
    disk_waits = False

    def _carry_out(self, command: Command) -> list[Message]:
        return [] if self.disk_waits and isinstance(command, SaveState) else super()._carry_out(command)


def test_packets_that_are_queued_have_time_to_leave_after_the_last_rule_is_confirmed() -> None:
    circuits = OpticalSwitches(cabling_of({(9, 1): (1, 2), (9, 2): (2, 2)}), dark_s=0.01, drain_s=0.1)
    circuits.switch_connected(Dpid(9), "optical", ())
    held = cross_connects({PortNo(1): PortNo(1), PortNo(2): PortNo(2)})
    circuits.rules_read(SwitchRules(Dpid(9), held, 0), 0.0)
    circuits.set_owned({ref(1, 2): ref(2, 2)})
    circuits.begin({LinkId(Dpid(1), PortNo(2))})
    assert not circuits.send(now=5.0)
    assert circuits.send(now=5.2)


def test_no_rule_leads_to_a_circuit_before_it_goes_dark() -> None:
    """The circuit may be the last path to a server, and the next circuit may lead back."""
    fabric = started(4, 1)
    stale: list[PortRef] = []

    def check() -> None:
        change = fabric.extension.optical.change
        if change and change.number is not None:
            for at in change.dark:
                groups = fabric.switches[at.dpid].groups.values()
                stale.extend(at for group in groups for bucket in group.buckets if bucket.watch_port == at.port)

    fabric.after_each_mod = check
    for job_id, servers in (("one", [1, 2, 3, 4]), ("two", [1, 3])):
        fabric.register(job_id, servers)
        fabric.send(DeregisterJob(JobId(job_id)))
        fabric.run(1)
    assert len(fabric.asked) == 2
    assert not stale


@pytest.mark.parametrize("details", [{}, {"circuits": [[1, 2]]}, {"circuits": [], "times_s": "soon", "strategy": ""}])
def test_a_saved_job_whose_wiring_cannot_be_read_is_refused_at_the_start(details: dict[str, object]) -> None:
    fabric = OpticalFabric(3, 2)
    spec = all_reduce("one", [1, 2, 3])
    job = Registration(spec, "one-1", "", 1e9, arrangement=Arrangement(spec, details))
    fabric.saved = SavedState({JobId("one"): job})
    with pytest.raises(InvalidInput, match=r"state_dir: the wiring of job 'one' cannot be read \(.*forget the job"):
        fabric.start()
