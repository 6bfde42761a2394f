"""The controller acknowledges a change when it is on disk, and takes it back when the disk refuses it."""

from __future__ import annotations

import random
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from controller.config import Config, FabricConfig
from controller.core.messages import Command, Message, Tick
from controller.core.state import Commits, KnownJobs
from controller.jobs.messages import (
    DeregisterJob,
    RegisterJob,
    Registration,
    RenewLease,
    ReportConnections,
    SavedState,
    SaveState,
    StateNotSaved,
    StateSaved,
    UpdateJob,
    UpdateJobs,
)
from controller.planning.messages import ModeSet, SetMode
from controller.serving.event_log import events
from signalbox.errors import NotFound, SignalboxError, Unavailable
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.words import AlarmKind, Mode
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job
from tests.support.late_answers import SlowDisk
from tests.support.long_cases import with_long
from tests.support.three_rings import started

CONFIG = Config(fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=FABRIC_BPS))
HOSTS = [f"10.0.{leaf}.1" for leaf in range(1, 5)]
FULL = "database or disk is full"


@pytest.fixture
def fabric() -> FakeFabric:
    return started(FakeFabric(4, 4, 1), config=CONFIG)


def alarms(fabric: FakeFabric) -> set[AlarmKind]:
    return {alarm.kind for alarm in fabric.status.alarms.values()}


def test_a_registration_that_cannot_be_saved_is_refused_and_nothing_of_it_stays(fabric: FakeFabric) -> None:
    fabric.disk_error = FULL
    fabric.send(RegisterJob(ring_job("job", HOSTS, lease_s=600)))
    (refused,) = fabric.new_replies()
    assert isinstance(refused, Unavailable)
    assert FULL in str(refused)
    assert refused.retry_s > 0
    fabric.run(1)
    assert not fabric.status.jobs
    assert fabric.status.pins == 0
    assert alarms(fabric) == {AlarmKind.STATE_NOT_SAVED}
    assert fabric.status.state_failures > 0
    fabric.disk_error = ""
    fabric.run(6)
    assert not alarms(fabric), "it was tried again"
    fabric.send(RegisterJob(ring_job("job", HOSTS, lease_s=600)))
    assert fabric.new_replies() == [fabric.job().uid]
    fabric.run(1)
    assert fabric.saved.jobs
    assert not alarms(fabric)


def test_connections_that_cannot_be_saved_are_those_before(fabric: FakeFabric) -> None:
    spec = JobSpec.parse({**ring_job("job", HOSTS, lease_s=600).model_dump(), "reports_connections": True})
    first, second = (frozenset({Connected(HOSTS[0], port, HOSTS[1], 6000)}) for port in (5000, 5001))
    fabric.send(RegisterJob(spec))
    fabric.send(ReportConnections(JobId("job"), HOSTS[0], first))
    fabric.new_replies()
    fabric.disk_error = FULL
    fabric.send(ReportConnections(JobId("job"), HOSTS[0], second))
    assert isinstance(fabric.new_replies()[0], Unavailable)
    assert fabric.loop.state.jobs.connections == {"job": first}
    other = JobSpec.parse({**spec.model_dump(), "job_id": "other"})
    fabric.disk_error = ""
    fabric.send(RegisterJob(other))
    fabric.send(ReportConnections(JobId("other"), HOSTS[0], second))
    assert fabric.new_replies() == [fabric.job("other").uid, None], "what was refused is free"


def test_an_alarm_says_that_changes_are_refused_before_anybody_asks_for_one(fabric: FakeFabric) -> None:
    """A controller without the claim of the state tries an empty commit."""
    fabric.disk_error = "etcd does not answer"
    fabric.run(1)
    assert not alarms(fabric), "nothing is to be saved"
    fabric.send(Tick(is_claimed=False))
    fabric.run(1)
    assert alarms(fabric) == {AlarmKind.STATE_NOT_SAVED}
    failures = fabric.status.state_failures
    fabric.send(Tick(is_claimed=False))
    fabric.run(1)
    assert fabric.status.state_failures == failures, "the next trial is not due yet"
    fabric.disk_error = ""
    fabric.run(6)
    assert not alarms(fabric)


def test_what_no_request_waits_for_is_written_when_the_disk_is_back(fabric: FakeFabric) -> None:
    fabric.send(RegisterJob(ring_job("job", HOSTS, lease_s=5)))
    fabric.disk_error = FULL
    fabric.run(8)
    assert not fabric.status.jobs
    assert fabric.saved.jobs
    fabric.disk_error = ""
    fabric.run(6)
    assert not fabric.saved.jobs
    assert not alarms(fabric)


def test_replies_and_what_is_told_wait_for_the_disk_and_nothing_else_does() -> None:
    fabric = started(SlowDisk(4, 4, 1), config=CONFIG)
    fabric.answer()  # the discovered parts of the fabric
    for number in (1, 2, 3):
        fabric.send(RegisterJob(ring_job(f"job{number}", HOSTS[number - 1 : number + 1], lease_s=600)))
    fabric.run(1)
    assert fabric.replies == []
    assert len(fabric.loop.state.sending.routes[JobId("job1")]) == 2, "routes do not wait"
    assert not fabric.status.jobs, "what is told does"
    assert len(fabric.late) == 1
    fabric.answer()
    assert fabric.new_replies() == [fabric.job("job1").uid]
    assert len(fabric.late) == 1, "those that came meanwhile share a commit"
    assert AlarmKind.STATE_NOT_SAVED not in alarms(fabric)
    fabric.run(3)
    assert AlarmKind.STATE_NOT_SAVED in alarms(fabric), "a disk that does not answer"
    fabric.answer()
    assert fabric.new_replies() == [fabric.job("job2").uid, fabric.job("job3").uid]
    fabric.run(0.5)
    assert AlarmKind.STATE_NOT_SAVED not in alarms(fabric)


# ---- what is published


class Published(SlowDisk):
    """Fabric that publishes a status after every event.

    ``log``: log entries that follow from the published statuses."""

    def __init__(self) -> None:
        super().__init__(4, 4, 1)
        self.log: list[tuple[str, str]] = []
        self.start(CONFIG)
        self._last = self.status
        self.run(3)
        self.answer()  # the discovered parts of the fabric
        self.log.clear()

    def send(self, message: Message | UpdateJob) -> None:
        super().send(message)
        self.publish()

    def publish(self) -> None:
        if hasattr(self, "_last"):
            before, self._last = self._last, self.status
            told = events(before, self._last)
            self.log += [(what, str(details.get("job", details.get("kind", "")))) for _, what, details in told]

    def fail(self) -> None:
        self.late.pop(0)
        self.disk_error = FULL
        self.send(StateNotSaved(FULL))

    def recover(self) -> None:
        """Let the next commits succeed, and acknowledge all of them."""
        self.disk_error = ""
        self.run(6)
        while self.late:
            self.answer()

    def _carry_out(self, command: Any) -> list[Any]:
        self.publish()
        return super()._carry_out(command)

    def logged(self) -> list[tuple[str, str]]:
        """Return the log entries about jobs, the mode and alarms since the last call."""
        found = [line for line in self.log if line[0].split()[0] in ("job", "alarm", "mode")]
        self.log.clear()
        return found


NOT_SAVED = [("alarm", "state_not_saved")]


@pytest.fixture
def published() -> Published:
    """Return a fabric with one running job."""
    fabric = Published()
    fabric.send(RegisterJob(ring_job("held", HOSTS, lease_s=600)))
    fabric.run(1)
    assert not fabric.logged()
    fabric.answer()
    assert fabric.logged() == [("job registered", "held")]
    fabric.run(1)
    fabric.logged()
    fabric.new_replies()
    return fabric


@pytest.mark.parametrize(
    "hosts", [HOSTS[::-1], [HOSTS[0], "10.9.9.9"]], ids=["all hosts are known", "one host is missing"]
)
def test_a_refused_registration_leaves_no_trace_in_log_alarms_and_metrics(
    published: Published, hosts: list[str]
) -> None:
    published.send(RegisterJob(ring_job("job", hosts, lease_s=600)))
    published.run(1)
    assert not published.logged()
    assert list(published.status.jobs) == list(published.status.demands) == ["held"]
    published.fail()
    published.run(3)
    assert published.logged() == NOT_SAVED
    assert list(published.status.jobs) == ["held"]
    assert isinstance(published.new_replies()[0], Unavailable)


def test_a_registration_is_told_with_its_reply_and_its_alarm_too(published: Published) -> None:
    published.send(RegisterJob(ring_job("job", [HOSTS[0], "10.9.9.9"], lease_s=600)))
    published.run(1)
    assert not published.logged()
    published.answer()
    assert published.logged() == [("job registered", "job"), ("alarm", "hosts_missing")]


def test_ends_updates_and_take_overs_that_are_taken_back_are_never_told(published: Published) -> None:
    held = published.job("held")
    other = ring_job("held", HOSTS[:3], lease_s=600)
    changes = (
        lambda: DeregisterJob(JobId("held")),
        lambda: DeregisterJob(JobId("held"), force=True),
        lambda: UpdateJob(other),
        lambda: RegisterJob(held.spec, owner="", take_over=True),
        lambda: RegisterJob(other, owner="", take_over=True),
    )
    for change in changes:
        published.recover()
        published.run(1)
        published.logged()
        published.send(change())
        published.run(0.5)
        told = published.job("held")
        assert (told.uid, told.spec) == (held.uid, held.spec)
        published.count({}, {})
        assert {what for what, _ in published.logged()} <= {"job"}, "what becomes of its routes"
        published.fail()
        told = published.job("held")
        assert (told.uid, told.spec) == (held.uid, held.spec)
        assert {what for what, _ in published.logged()} <= {"alarm", "job"}
        assert sum(published.status.jobs_ended.values()) == 0
    published.run(1)
    assert published.job("held").state == "pinned"


def test_what_was_acknowledged_is_told_while_the_next_change_of_the_job_waits(published: Published) -> None:
    """A client that has the OK to the first change reads that change, not the state before it."""
    first, second = (ring_job("held", hosts, lease_s=600) for hosts in (HOSTS[:3], HOSTS[1:]))
    published.send(UpdateJob(first))
    published.send(UpdateJob(second))
    published.answer()
    assert published.new_replies()
    told = published.job("held")
    assert (told.spec, {flow.src_ip for flow in told.routes}) == (first, set(HOSTS[:3]))
    published.fail()
    assert published.job("held").spec == first


def test_what_the_network_does_is_told_while_a_change_of_the_job_waits(published: Published) -> None:
    held = published.job("held")
    cut = next(path[0] for route in held.routes.values() for path, _ in route or () if path)
    published.send(UpdateJob(ring_job("held", HOSTS, lease_s=60)))
    published.cut(cut.dpid, cut.port)
    published.run(2)
    told = published.job("held")
    assert told.spec == held.spec
    assert told.state == "pinned"
    assert cut not in {link for route in told.routes.values() for path, _ in route or () for link in path}


def test_other_pairs_are_another_generation_of_routes_also_while_none_is_pinned(published: Published) -> None:
    published.send(RegisterJob(ring_job("job", [HOSTS[0], "10.9.9.9"], lease_s=600)))
    published.answer()
    before = published.job().routes_generation
    published.send(UpdateJob(ring_job("job", [HOSTS[1], "10.9.9.9"], lease_s=600)))
    published.answer()
    assert published.job().routes_generation > before


def test_a_refusal_that_follows_from_a_change_that_is_not_on_disk_waits_for_it(published: Published) -> None:
    """A client that learns that its registration is over stops, so the refusal has to be final."""
    owner = published.job("held").uid
    for fails in (True, False):
        published.send(RegisterJob(ring_job("held", HOSTS[:3], lease_s=600), owner=owner, take_over=True))
        published.send(RenewLease(JobId("held"), owner))
        published.run(1)
        assert not published.new_replies()
        if fails:
            published.fail()
            assert [type(value) for value in published.new_replies()] == [Unavailable, Unavailable]
            published.recover()
        else:
            published.answer()
            assert {type(value) for value in published.new_replies()} == {str, NotFound}


def test_a_lease_does_not_run_out_while_what_began_it_is_not_on_disk(published: Published) -> None:
    published.send(RegisterJob(ring_job("new", [HOSTS[0], HOSTS[2]], lease_s=5)))
    published.run(12)
    assert sum(published.status.jobs_ended.values()) == 0
    published.answer()
    assert JobId("new") in published.status.jobs
    published.run(4)
    assert JobId("new") in published.status.jobs, "its owner has had no time to renew it"
    published.run(2)
    assert JobId("new") not in published.status.jobs


def test_a_mode_that_is_set_back_is_never_told(published: Published) -> None:
    published.send(SetMode(Mode.ECMP))
    published.run(1)
    published.fail()
    published.run(1)
    assert [type(answer) for answer in published.new_replies()] == [Unavailable]
    assert (published.status.mode, published.job("held").state) == (Mode.PLANNED, "pinned")
    assert not [what for what, _ in published.logged() if what.startswith("mode")]
    published.recover()
    published.send(SetMode(Mode.ECMP))
    published.run(1)
    told = [published.status.mode]
    published.answer()
    assert [*told, published.status.mode] == [Mode.PLANNED, Mode.ECMP]
    assert [what for what, _ in published.logged() if what.startswith("mode")] == ["mode set"]


def test_a_mode_that_is_in_force_is_set_again_only_while_changes_can_be_saved(published: Published) -> None:
    published.send(SetMode(Mode.PLANNED))
    published.run(3)
    assert [type(answer) for answer in published.new_replies()] == [ModeSet]
    published.disk_error = FULL
    published.send(Tick(is_claimed=False))
    published.send(SetMode(Mode.PLANNED))
    published.run(1)
    assert [type(answer) for answer in published.new_replies()] == [Unavailable]


def test_a_lease_that_runs_out_is_told_whatever_the_disk_does(published: Published) -> None:
    short = ring_job("short", [HOSTS[0], HOSTS[2]], lease_s=5)
    published.send(RegisterJob(short))
    published.answer()
    assert set(published.status.jobs) == {"held", "short"}
    published.logged()
    published.run(8)
    assert published.late, "the disk has not answered"
    assert ("job ended", "short") in published.logged()
    assert set(published.status.jobs) == {"held"}
    published.send(RegisterJob(short))
    assert set(published.status.jobs) == {"held"}, "neither of the two"
    while published.late:
        published.answer()
    assert set(published.status.jobs) == {"held", "short"}
    assert ("job registered", "short") in published.logged()


# ---- the requests alone: which are taken back, in which order, and the reply to each of them


class Requests:
    """Requests that wait for the disk.

    ``did``: their outcomes, in order."""

    def __init__(self) -> None:
        self.commits = Commits(SavedState())
        self.did: list[tuple[str, str, float]] = []
        self.replies: dict[str, Future[Any]] = {}

    def hold(self, *names: str) -> None:
        for name in names:
            self.replies[name] = Future()

            def undo(now: float, name: str = name) -> None:
                self.did.append(("undone", name, now))

            def then(now: float, name: str = name) -> None:
                self.did.append(("done", name, now))

            self.commits.add_request(self.replies[name], name, undo, then)

    def begin(self) -> None:
        (save,) = self.commits.begin(SavedState(mode=Mode.ECMP), KnownJobs(), 1.0)
        assert isinstance(save, SaveState)


@pytest.fixture
def requests() -> Requests:
    return Requests()


def test_what_is_under_way_and_what_waits_is_taken_back_the_newest_first(requests: Requests) -> None:
    """A later request was accepted on top of the earlier requests, so it is undone before them."""
    requests.hold("a", "b")
    requests.begin()
    requests.hold("c", "d")
    replies = requests.commits.failed("disk full", 7.0)
    assert requests.did == [("undone", name, 7.0) for name in "dcba"]
    assert [reply.future for reply in replies] == [requests.replies[name] for name in "abcd"]
    assert {type(reply.value) for reply in replies} == {Unavailable}
    assert not requests.commits.has_waiting
    assert not requests.commits.busy


def test_what_has_failed_is_taken_back_once(requests: Requests) -> None:
    requests.hold("a")
    requests.begin()
    requests.commits.failed("disk full", 7.0)
    requests.hold("b")
    requests.begin()
    requests.did.clear()
    assert [reply.value for reply in requests.commits.done(1, 9.0)] == ["b"]
    assert requests.did == [("done", "b", 9.0)]
    assert requests.commits.on_disk == SavedState(mode=Mode.ECMP)


def test_what_comes_while_a_commit_is_under_way_waits_for_the_next_one(requests: Requests) -> None:
    requests.hold("a")
    requests.begin()
    requests.hold("b")
    assert [reply.value for reply in requests.commits.done(1, 8.0)] == ["a"]
    assert requests.commits.has_waiting
    requests.commits.begin(SavedState(), KnownJobs(), 9.0)
    assert [reply.value for reply in requests.commits.failed("disk full", 10.0)] != ["b"]
    assert requests.did == [("done", "a", 8.0), ("undone", "b", 10.0)]


# ---- acknowledged changes are in memory and on disk, and survive a restart, for any requests and any disk errors


RINGS = [HOSTS, HOSTS[::-1], HOSTS[:3], HOSTS[1:], [HOSTS[0], HOSTS[2]]]
JOBS = ("a", "b", "c")

Request = RegisterJob | UpdateJobs | DeregisterJob


class Attempts(FakeFabric):
    """Fabric whose commits reach the disk, or fail, when the test says so.

    ``model``: the registrations acknowledged so far."""

    def __init__(self, seed: int) -> None:
        super().__init__(4, 2, 1)
        self.draw = random.Random(seed)
        self.writing: list[SavedState] = []
        self.asked: dict[int, tuple[Future[Any], Request]] = {}
        self.model: dict[JobId, Registration] = {}
        self.ended: set[str] = set()
        self.refused = self.acknowledged = self.exchanged = 0

    def _carry_out(self, command: Command) -> list[Message]:
        if isinstance(command, SaveState):
            self.writing.append(command.state)
            return []
        return super()._carry_out(command)

    def finish(self, written: bool) -> None:
        """End the oldest commit; ``written``: whether the state reaches the disk or the commit fails."""
        state = self.writing.pop(0)
        if written:
            self.saved = state
            self.commits += 1
        self.send(StateSaved(self.commits) if written else StateNotSaved("a fault"))
        self.take_replies()

    def ask(self) -> None:
        job_id, ring = JobId(self.draw.choice(JOBS)), self.draw.choice(RINGS)
        spec = ring_job(job_id, ring, lease_s=80_000, reports_connections=self.draw.random() < 0.3)
        held = self.loop.state.jobs.jobs.get(job_id)
        owner = held.uid if held and self.draw.random() < 0.7 else ""
        message: Request = self.draw.choice(
            (
                RegisterJob(spec, owner),
                RegisterJob(held.spec if held else spec, owner, take_over=True),
                RegisterJob(spec, owner, take_over=True),
                UpdateJobs((UpdateJob(spec, owner=owner),)),
                DeregisterJob(job_id, owner),
            )
        )
        if len(self.loop.state.jobs.jobs) > 1 and self.draw.random() < 0.4:
            message = self.several_updates()
        self.asked[id(message.reply)] = message.reply, message
        self.send(message)
        self.take_replies()

    def several_updates(self) -> UpdateJobs:
        """Return updates of several existing jobs, which exchange their traffic or get traffic of random rings."""
        held = self.loop.state.jobs.jobs
        jobs = self.draw.sample(sorted(held), self.draw.randint(2, len(held)))
        exchange = self.draw.random() < 0.7
        updates = []
        for number, job_id in enumerate(jobs):
            other = held[jobs[number - 1]].spec if exchange else ring_job("any", self.draw.choice(RINGS))
            owner = held[job_id].uid if self.draw.random() < 0.95 else ""
            spec = ring_job(job_id, [*other.endpoints], lease_s=80_000, reports_connections=other.reports_connections)
            updates.append(UpdateJob(spec, owner=owner, entry=f"jobs[{number}]"))
        return UpdateJobs(tuple(updates))

    def take_replies(self) -> None:
        values = {id(reply.future): reply.value for reply in self.replies}
        self.replies.clear()
        for key in [key for key in self.asked if key in values]:
            _, message = self.asked.pop(key)
            value = values[key]
            if isinstance(value, SignalboxError):
                self.refused += 1
                continue
            self.acknowledged += 1
            if isinstance(message, UpdateJobs):
                assert value == tuple(self.model[update.job_id].uid for update in message.updates)
                for update in message.updates:
                    held = self.model[update.job_id]
                    revision = held.revision + (update.spec != held.spec)
                    self.model[update.job_id] = replace(held, spec=update.spec, revision=revision)
                self.exchanged += len(message.updates) > 1
                continue
            job_id = message.job_id if isinstance(message, DeregisterJob) else JobId(message.spec.job_id)
            before = self.model.pop(job_id, None)
            if isinstance(message, RegisterJob):
                renewed = before is not None and before.uid == value
                self.model[job_id] = before if before and renewed else message.registration
            if before and self.model.get(job_id, message) is not before and before.uid != value:
                self.ended.add(before.uid)

    def check(self) -> None:
        assert not self.asked
        assert {job_id: job.registration for job_id, job in self.loop.state.jobs.jobs.items()} == self.model
        assert self.saved.jobs == self.model
        ends = [end.uid for end in self.status.job_ends]
        assert len(ends) == len(set(ends))
        assert set(ends) == self.ended
        assert self.loop.state.demand.demands.keys() == self.model.keys()
        for job_id, job in self.status.jobs.items():
            declared = self.loop.state.demand.demands[job_id].declared.keys()
            assert declared == {flow.pair for flow in job.routes}


@pytest.mark.parametrize("seed", with_long([0, 1, 10, 11], range(12)))
def test_what_was_acknowledged_is_there(seed: int) -> None:
    fabric = started(Attempts(seed), config=CONFIG)
    for _ in range(30):
        for _ in range(fabric.draw.randrange(5)):
            fabric.ask()
        fabric.run(fabric.draw.choice((0.1, 1.0, 6.0)))
        while fabric.writing and fabric.draw.random() < 0.8:
            fabric.finish(written=fabric.draw.random() < 0.6)
    for _ in range(4):
        fabric.run(6)
        while fabric.writing:
            fabric.finish(written=True)
    fabric.check()
    assert fabric.acknowledged > 5
    assert fabric.refused > 5
    assert fabric.exchanged
    fabric.start(CONFIG)
    assert {job_id: job.registration for job_id, job in fabric.loop.state.jobs.jobs.items()} == fabric.model
