"""Several jobs updated at once, by the whole control loop on fake switches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controller.circuits.job_wiring import JobWiring
from controller.core.messages import Command, Message
from controller.jobs.messages import (
    DeregisterJob,
    RegisterJob,
    ReportConnections,
    SaveState,
    StateNotSaved,
    StateSaved,
    UpdateJob,
    UpdateJobs,
)
from controller.planning.messages import SolvePlan
from controller.tables.rules import FlowRule, RuleSet, Table
from signalbox.errors import Conflict, Unavailable, WrongLeaseToken
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.optical_fabric import all_reduce, reach, started, wired
from tests.support.three_rings import CONFIG, RINGS, assert_no_collision, spines_used

J0, J1, J2 = (JobId(f"job{number}") for number in range(3))


class Planned(FakeFabric):
    """Fabric that records the problems that its planner receives.

    ``asked``: the jobs' pairs in each problem that the planner received.
    ``slow``: whether commits succeed or fail only when the test says so."""

    def __init__(self, hosts_per_leaf: int = 3) -> None:
        super().__init__(hosts_per_leaf=hosts_per_leaf)
        self.asked: list[dict[JobId, frozenset[tuple[str, str]]]] = []
        self.slow = False
        self.waiting: list[StateSaved] = []

    def _carry_out(self, command: Command) -> list[Message]:
        if isinstance(command, SolvePlan):
            flows = command.snapshot.flows.items()
            self.asked.append({job_id: frozenset(flow.id.pair for flow in of) for job_id, of in flows})
        answered = super()._carry_out(command)
        if self.slow and isinstance(command, SaveState):
            self.waiting += [message for message in answered if isinstance(message, StateSaved)]
            return [message for message in answered if not isinstance(message, StateSaved)]
        return answered

    def held(self) -> dict[str, RuleSet]:
        return {switch.name: switch.rules() for switch in self.switches.values()}

    def job(self, job_id: JobId) -> Any:
        return self.status.jobs[job_id]

    def answers(self) -> list[Any]:
        """Return the values of the replies since the last call."""
        values = [reply.value for reply in self.replies]
        self.replies.clear()
        return values


@pytest.fixture
def fabric() -> Planned:
    fabric = Planned()
    fabric.start(CONFIG)
    fabric.run(3)
    for number, ring in enumerate(RINGS):
        fabric.send(RegisterJob(ring_job(f"job{number}", ring, lease_s=600)))
    fabric.run(3)
    fabric.answers()
    return fabric


def rings(*numbers: int, **more: Any) -> UpdateJobs:
    """Return an update that gives job k the ring with the number ``numbers[k]``."""
    specs = [ring_job(f"job{job}", RINGS[ring], lease_s=600, **more) for job, ring in enumerate(numbers)]
    return update(*specs)


def update(*specs: JobSpec) -> UpdateJobs:
    return UpdateJobs(tuple(UpdateJob(spec, entry=f"jobs[{number}]") for number, spec in enumerate(specs)))


def everything(fabric: Planned) -> tuple[Any, ...]:
    jobs = {job_id: (job.registration, job.state, job.routes) for job_id, job in fabric.status.jobs.items()}
    return jobs, fabric.saved.jobs, fabric.held()


@pytest.mark.parametrize("numbers", [(1, 0), (1, 2, 0)], ids=["two", "three in turn"])
def test_jobs_exchange_hosts_without_a_packet_lost_and_by_one_plan(fabric: Planned, numbers: tuple[int, ...]) -> None:
    before = spines_used(fabric)
    moved = []

    def check() -> None:
        moved.append(spines_used(fabric) != before)

    fabric.after_each_mod = check
    fabric.asked.clear()
    fabric.send(rings(*numbers))
    fabric.run(0.2)
    assert fabric.answers() == [tuple(fabric.job(JobId(f"job{n}")).uid for n in range(len(numbers)))]
    assert moved
    assert not any(moved), "each pair keeps its route, whichever job has it"
    fabric.run(3)
    assert_no_collision(fabric)
    after = {JobId(f"job{job}"): pairs_of(RINGS[ring]) for job, ring in enumerate(numbers)}
    assert fabric.asked
    assert all({job_id: of[job_id] for job_id in after} == after for of in fabric.asked), "no plan of a half"
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    owners = {fabric.saved.jobs[job_id].spec.endpoints for job_id in after}
    assert owners == {tuple(RINGS[ring]) for ring in numbers}


def pairs_of(ring: list[str]) -> frozenset[tuple[str, str]]:
    return frozenset((ring[i], ring[(i + 1) % len(ring)]) for i in range(len(ring)))


def all_to_all(job_id: str, hosts: range) -> JobSpec:
    ips = [f"10.0.{leaf}.{host}" for leaf in (1, 2, 3, 4) for host in hosts]
    collectives = [{"algorithm": "all_to_all", "groups": ["dp"], "bytes_per_iteration": 10_000_000}]
    return ring_job(job_id, ips, lease_s=600, collectives=collectives)


def test_rules_of_large_jobs_change_hands_together() -> None:
    """Pins are otherwise derived for some dozens of flows at a time; here every pair must keep a rule meanwhile."""
    fabric = Planned(hosts_per_leaf=6)
    fabric.start(CONFIG)
    fabric.run(3)
    first, second = range(1, 4), range(4, 7)
    for number, hosts in enumerate((first, second)):
        fabric.send(RegisterJob(all_to_all(f"job{number}", hosts)))
    fabric.run(12)
    pinned = pins(fabric)
    assert len(pinned) > 200
    lost = []

    def check() -> None:
        lost.append(pins(fabric).keys() != pinned.keys())

    fabric.after_each_mod = check
    fabric.send(update(all_to_all("job0", second), all_to_all("job1", first)))
    fabric.run(0.5)
    assert lost
    assert not any(lost), "no pair is without its rule meanwhile"
    assert {rule.cookie for rule in pins(fabric).values()} == {rule.cookie for rule in pinned.values()}
    assert all(rule.cookie != pinned[key].cookie for key, rule in pins(fabric).items())


def pins(fabric: FakeFabric) -> dict[Any, FlowRule]:
    flows = ((switch.dpid, key, rule) for switch in fabric.switches.values() for key, rule in switch.flows.items())
    return {(dpid, key): rule for dpid, key, rule in flows if key.table is Table.PINNED and key.match.ip_src}


def test_one_job_shrinks_and_another_grows_onto_its_hosts(fabric: Planned) -> None:
    shorter, longer = RINGS[0][:3], [*RINGS[1], RINGS[0][3]]
    fabric.send(update(ring_job("job1", longer, lease_s=600), ring_job("job0", shorter, lease_s=600)))
    fabric.run(3)
    assert [len(fabric.job(job_id).routes) for job_id in (J0, J1)] == [3, 5]
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}


def test_the_same_set_again_changes_nothing(fabric: Planned) -> None:
    fabric.send(rings(1, 0))
    fabric.run(3)
    before = everything(fabric)
    fabric.forget_mods()
    fabric.send(rings(1, 0))
    fabric.run(1)
    first, second = fabric.answers()
    assert first == second
    assert everything(fabric) == before
    assert not fabric.mods


# ---- refused, or not saved


REFUSED: dict[str, tuple[Callable[[], UpdateJobs], type[Exception]]] = {
    "a pair of a job beside them": (lambda: rings(1, 2), Conflict),
    "a token": (
        lambda: UpdateJobs((*rings(1).updates, UpdateJob(ring_job("job1", RINGS[0]), owner="another"))),
        WrongLeaseToken,
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refused_set_changes_nothing(fabric: Planned, why: str) -> None:
    wanted, kind = REFUSED[why]
    before = everything(fabric)
    fabric.forget_mods()
    fabric.asked.clear()
    fabric.send(wanted())
    fabric.run(1)
    assert [type(answer) for answer in fabric.answers()] == [kind]
    assert everything(fabric) == before
    assert not fabric.mods


@pytest.mark.parametrize("then", ["nothing", "one deregisters", "one is updated", "they exchange again"])
def test_a_set_that_cannot_be_saved_is_undone_as_a_whole(fabric: Planned, then: str) -> None:
    """Changes after the set are undone too, newest first."""
    before, spines = everything(fabric)[:2], spines_used(fabric)
    fabric.slow = True
    fabric.send(rings(1, 2, 0))
    after: dict[str, list[Any]] = {
        "nothing": [],
        "one deregisters": [DeregisterJob(J0)],
        "one is updated": [UpdateJob(ring_job("job0", RINGS[1][:3], lease_s=600))],
        "they exchange again": [rings(0, 1, 2)],
    }
    for message in after[then]:
        fabric.send(message)
    fabric.run(0.5)
    assert not fabric.answers()
    fabric.waiting.clear()
    fabric.disk_error = "full"
    fabric.saved = fabric.saved.__class__(**{**vars_of(fabric.saved), "jobs": before[1]})
    fabric.send(StateNotSaved("full"))
    answers = fabric.answers()
    assert len(answers) == 1 + len(after[then])
    assert all(isinstance(answer, Unavailable) for answer in answers)
    fabric.run(2)
    assert everything(fabric)[0].keys() == before[0].keys()
    assert {job_id: job.registration for job_id, job in fabric.status.jobs.items()} == dict(before[1])
    assert spines_used(fabric).keys() == spines.keys()
    assert_no_collision(fabric)
    fabric.disk_error, fabric.slow = "", False
    fabric.send(rings(1, 2, 0))
    fabric.run(3)
    assert [type(answer) for answer in fabric.answers()] == [tuple]


def test_no_lease_of_the_set_runs_out_while_it_waits_for_the_disk(fabric: Planned) -> None:
    """The controller restores the former specs of the jobs if the commit fails."""
    for job in (0, 1):
        fabric.send(RegisterJob(ring_job(f"job{job}", RINGS[job], lease_s=5), take_over=True))
    fabric.run(1)
    fabric.slow = True
    fabric.send(update(*(ring_job(f"job{job}", RINGS[1 - job], lease_s=5) for job in (0, 1))))
    fabric.run(12)
    assert {J0, J1} <= fabric.status.jobs.keys()
    while fabric.waiting:
        fabric.send(fabric.waiting.pop(0))
    assert {J0, J1} <= fabric.status.jobs.keys()
    fabric.slow = False
    fabric.run(12)
    assert fabric.status.jobs.keys() == {J2}, "their owners have not been heard since"


def vars_of(state: Any) -> dict[str, Any]:
    return {name: getattr(state, name) for name in state.__dataclass_fields__}


def test_a_restart_knows_the_whole_set_or_nothing_of_it(fabric: Planned) -> None:
    commits: list[Any] = [fabric.saved.jobs]
    fabric.slow = True
    fabric.send(rings(1, 0))
    fabric.run(0.5)
    commits.append(fabric.saved.jobs)
    found = [{jobs[J0].spec.endpoints: jobs[J1].spec.endpoints} for jobs in commits]
    first, second = (tuple(ring) for ring in RINGS[:2])
    assert found == [{first: second}, {second: first}], "one commit has both"


def exchange(fabric: Planned) -> None:
    fabric.send(rings(1, 0))
    fabric.run(3)


class Killed(BaseException):
    """End of the controller as by SIGKILL: it finishes and announces nothing."""


@pytest.mark.parametrize("after", range(0, 16, 3))
def test_killed_after_any_rule_of_an_exchange_the_next_controller_finishes_it(fabric: Planned, after: int) -> None:
    fabric.forget_mods()

    def kill() -> None:
        if len(fabric.mods) > after:
            raise Killed

    fabric.after_each_mod = kill
    with pytest.raises(Killed):
        exchange(fabric)
    fabric.after_each_mod = lambda: None
    fabric.start(CONFIG)
    fabric.run(CONFIG.discovery.adoption_patience_s + 4, step=0.5)
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    assert all(switch.in_sync for switch in fabric.status.switches.values())
    assert_no_collision(fabric)


# ---- circuits


def test_jobs_with_circuits_exchange_servers() -> None:
    fabric = started(7, 2)
    fabric.send(RegisterJob(all_reduce("one", [1, 2, 3], lease_s=600)))
    fabric.send(RegisterJob(all_reduce("two", [4, 5, 6, 7], lease_s=600)))
    fabric.run(3)
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    fabric.send(update(all_reduce("one", [4, 5, 6, 7], lease_s=600), all_reduce("two", [1, 2, 3], lease_s=600)))
    fabric.run(6)
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    assert reach(fabric, [1, 2, 3])
    assert reach(fabric, [4, 5, 6, 7])
    servers = {job_id: wired_servers(wired(job)) for job_id, job in fabric.status.jobs.items()}
    assert servers == {"one": {4, 5, 6, 7}, "two": {1, 2, 3}}
    assert not fabric.status.alarms


def wired_servers(wiring: JobWiring) -> set[int]:
    return {at.dpid for circuit in wiring.circuits for at in circuit}


# ---- connections


def test_jobs_that_report_connections_exchange_hosts(fabric: Planned) -> None:
    """The reported connections of addresses that leave are forgotten, and no packet of a pair is lost."""
    shares = {"reports_connections": True}
    fabric.send(rings(0, 1, **shares))
    fabric.run(1)
    ports = iter(range(5000, 6000))

    def connect(job_id: JobId, ring: list[str]) -> set[Connected]:
        found = {Connected(src, next(ports), dst, 7000) for src, dst in sorted(pairs_of(ring))}
        for one in found:
            fabric.send(ReportConnections(job_id, one.src_ip, frozenset({one})))
        fabric.run(3)
        return found

    for turn in range(2):
        reported = {job_id: connect(job_id, RINGS[(n + turn) % 2]) for n, job_id in enumerate((J0, J1))}
        assert fabric.loop.state.jobs.connections == reported
        fabric.after_each_mod = lambda: spines_used(fabric)
        fabric.send(rings(1 - turn, turn, **shares))
        fabric.run(3)
        fabric.after_each_mod = lambda: None
        assert not any(fabric.loop.state.jobs.connections.values())
    assert_no_collision(fabric)
