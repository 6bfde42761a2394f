"""A job belongs to one registration: only its owner changes it, and the owner learns how it ended."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from controller.jobs.job import Job
from controller.jobs.messages import (
    MAX_ENDS,
    MAX_SAVED,
    NO_QUOTA,
    EndReason,
    Ends,
    JobEnd,
    Quota,
    RegisterJob,
    Registration,
    SavedState,
    UpdateJob,
    ends_since,
)
from controller.jobs.registry import JobRegistry
from signalbox.errors import (
    AlreadyExists,
    Conflict,
    Exhausted,
    Gone,
    InvalidInput,
    NotAnnounced,
    NotFound,
    SignalboxError,
    WrongLeaseToken,
)
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.by_id import registered
from tests.support.long_cases import with_long

A = JobId("a")
WALL = 1e9


def spec(job_id: str = "a", hosts: tuple[int, ...] = (1, 2), **changes: object) -> JobSpec:
    ips = [f"10.0.0.{host}" for host in hosts]
    transfers = [{"src": rank, "dst": (rank + 1) % len(ips), "bytes_per_iteration": 9} for rank in range(len(ips))]
    return JobSpec.parse({"job_id": job_id, "endpoints": ips, "transfers": transfers, "lease_s": 60, **changes})


@pytest.fixture
def registry() -> JobRegistry:
    return JobRegistry(max_jobs=3)


@pytest.fixture
def job(registry: JobRegistry) -> Job:
    return registry.register(RegisterJob(spec(), tenant="red", request_id="once"), 0.0)


def times(*indices: int) -> tuple[IterationTime, ...]:
    return tuple(IterationTime(index, 2.0, 1.0) for index in indices)


Call = Callable[[JobRegistry, JobId, str | None], object]
CALLS: dict[str, Call] = {
    "renew": lambda registry, job_id, owner: registry.renew(job_id, owner, 1e6),
    "report": lambda registry, job_id, owner: registry.report(job_id, owner, times(99), 0.0),
    "report connections": lambda registry, job_id, owner: registry.report_connections(
        job_id, "10.0.0.1", frozenset(), owner
    ),
    "update": lambda registry, job_id, owner: registry.update([UpdateJob(spec(job_id, (8, 9)), owner=owner)]),
    "deregister": lambda registry, job_id, owner: registry.deregister(job_id, owner, WALL),
}


# ---- permissions


def test_the_owner_or_a_repetition_of_the_request_renews_and_has_the_same_uid(registry: JobRegistry, job: Job) -> None:
    for number, claim in enumerate(({"owner": job.uid}, {"tenant": "red", "request_id": "once"}), 1):
        again = registry.register(RegisterJob(spec(), **claim), float(number))  # type: ignore[arg-type]
        assert again is job
        assert again.vitals.lease_ends_at == 60.0 + number


@pytest.mark.parametrize(
    "claim",
    [{}, {"owner": "stranger"}, {"tenant": "red"}, {"request_id": "once"}, {"tenant": "red", "request_id": "twice"}],
)
def test_another_registration_of_a_taken_id_is_refused(registry: JobRegistry, job: Job, claim: dict[str, str]) -> None:
    with pytest.raises(AlreadyExists, match="belongs to another registration") as error:
        registry.register(RegisterJob(spec(), **claim), 1.0)  # type: ignore[arg-type]
    assert error.value.about == {"jobId": "a", "heldBy": "other"}
    assert registry.jobs == {A: job}
    assert job.vitals.lease_ends_at == 60.0


# ---- taking over


def test_who_takes_over_has_the_job_and_the_owner_learns_it(registry: JobRegistry, job: Job) -> None:
    new = registry.register(RegisterJob(spec(), take_over=True), 5.0)
    assert new.uid != job.uid
    assert registry.jobs[A].registration.tenant == ""  # an operator
    for name, call in CALLS.items():
        with pytest.raises(NotFound, match="taken over") as error:
            call(registry, A, job.uid)
        assert error.value.reason is Gone.JOB_TAKEN_OVER, name
    assert registry.renew(A, new.uid, 6.0) == 60.0


def test_taking_over_with_the_same_spec_keeps_links_and_forgets_connections(registry: JobRegistry) -> None:
    of_job = spec(reports_connections=True)
    old = registry.register(RegisterJob(of_job), 0.0)
    connections = frozenset({Connected("10.0.0.1", 5000, "10.0.0.2", 6000)})
    registry.report_connections(A, "10.0.0.1", connections, old.uid)
    registry.report(A, old.uid, times(7), 0.0)
    new = registry.register(RegisterJob(of_job, take_over=True), 1.0)
    assert registry.connections == {}
    assert new.virtual_links is old.virtual_links
    assert not new.dividing.connections
    other = registry.register(RegisterJob(spec("b", reports_connections=True)), 1.0)
    registry.report_connections(other.id, "10.0.0.1", connections, other.uid)
    assert registry.report(A, new.uid, times(0), 0.0) == times(0), "its iterations are counted anew"


def test_taking_over_with_another_spec_frees_the_pairs_of_the_old_one(registry: JobRegistry, job: Job) -> None:
    other = registry.register(RegisterJob(spec("b", (3, 4))), 0.0)
    with pytest.raises(Conflict):
        registry.register(RegisterJob(spec(hosts=(3, 4)), take_over=True), 1.0)
    assert registry.jobs == {A: job, other.id: other}, "a refused one changes nothing"
    registry.register(RegisterJob(spec(hosts=(2, 1, 5)), take_over=True), 1.0)
    registry.register(RegisterJob(spec("c", (1, 6))), 1.0)
    with pytest.raises(Conflict):
        registry.register(RegisterJob(spec("b", (1, 5)), take_over=True), 1.0)


# ---- ends


def test_each_end_is_told_apart(registry: JobRegistry) -> None:
    ran_out = registry.register(RegisterJob(spec()), 0.0)
    registry.expire(60.0, WALL + 60)
    taken_over = registry.register(RegisterJob(spec(), tenant="red"), 61.0)
    deregistered = registry.register(RegisterJob(spec(), take_over=True, registered_at=WALL + 62), 62.0)
    end = registry.deregister(A, deregistered.uid, WALL + 63)
    for job, reason in (
        (ran_out, Gone.LEASE_RAN_OUT),
        (taken_over, Gone.JOB_TAKEN_OVER),
        (deregistered, Gone.JOB_DEREGISTERED),
    ):
        with pytest.raises(NotFound) as error:
            registry.renew(A, job.uid, 64.0)
        assert error.value.reason is reason
        assert error.value.about == {"jobId": "a"}
    with pytest.raises(NotFound) as error:
        registry.renew(A, None, 64.0)
    assert error.value.reason is Gone.JOB_DEREGISTERED, "the latest"
    with pytest.raises(NotFound, match="there is no job 'b'") as error:
        registry.renew(JobId("b"), deregistered.uid, 64.0)
    assert (error.value.reason, error.value.about) == (Gone.NO_SUCH_JOB, {"jobId": "b"})
    assert end == JobEnd(A, deregistered.uid, "", EndReason.DEREGISTERED, WALL + 63)
    assert registry.ends.certain == (JobEnd(A, ran_out.uid, "", EndReason.LEASE_RAN_OUT, WALL + 60),), "on disk or not"
    assert registry.ends.of(A, taken_over.uid) == JobEnd(A, taken_over.uid, "red", EndReason.TAKEN_OVER, WALL + 62)


def test_a_repetition_of_a_request_whose_registration_has_ended_begins_nothing(registry: JobRegistry) -> None:
    def register(request_id: str, take_over: bool = True, now: float = 0.0, tenant: str = "red") -> Job:
        request = RegisterJob(spec(), take_over=take_over, tenant=tenant, request_id=request_id)
        return registry.register(request, now)

    def refused(request_id: str, reason: Gone, take_over: bool = True) -> None:
        before = dict(registry.jobs)
        with pytest.raises(NotFound) as error:
            register(request_id, take_over)
        assert error.value.reason is reason
        assert registry.jobs == before

    register("first")
    second = register("second")
    refused("first", Gone.JOB_TAKEN_OVER)
    assert register("second") is second
    registry.deregister(A, second.uid, WALL)
    refused("second", Gone.JOB_DEREGISTERED, take_over=False)
    register("third", take_over=False)
    registry.expire(60.0, WALL)
    refused("third", Gone.LEASE_RAN_OUT, take_over=False)
    register("first", tenant="", now=61.0)  # another caller's job
    refused("first", Gone.JOB_TAKEN_OVER)


def test_a_request_id_does_not_take_over_its_own_registration(registry: JobRegistry, job: Job) -> None:
    changed = RegisterJob(spec(max_subflows=2), take_over=True, tenant="red", request_id="once")
    with pytest.raises(AlreadyExists, match=r"take it over \(in the API: with a new request_id\)") as error:
        registry.register(changed, 1.0)
    assert error.value.about == {"jobId": "a", "heldBy": "caller"}
    assert registry.jobs == {A: job}


def test_what_is_undone_has_not_ended(registry: JobRegistry, job: Job) -> None:
    before = registry.known(A)
    registry.deregister(A, job.uid, WALL)
    registry.restore({A: before})
    assert registry.renew(A, job.uid, 1.0) == 60.0
    new = registry.register(RegisterJob(spec(), take_over=True), 2.0)
    registry.restore({A: before})
    assert registry.renew(A, job.uid, 3.0) == 60.0
    assert registry.register(RegisterJob(spec(), tenant="red", request_id="once"), 3.0).uid == job.uid
    with pytest.raises(WrongLeaseToken) as error:
        registry.renew(A, None, 3.0)
    assert error.value.about == {"jobId": "a"}
    with pytest.raises(WrongLeaseToken):
        registry.renew(A, new.uid, 3.0)


def test_the_latest_ends_are_kept() -> None:
    ends = Ends()
    for number in range(MAX_ENDS + 2):
        job_id = JobId(f"job{number % 7}")
        end = JobEnd(job_id, str(number), "", EndReason.LEASE_RAN_OUT, WALL, f"request {number}")
        ends.add(end)
        ends.confirm(end)
    assert ends.of(JobId("job0"), "0") is None
    assert ends.of_request(JobId("job0"), "", "request 0") is None
    assert ends.of_request(JobId("job2"), "", "request 2") is ends.of(JobId("job2"), "2")
    assert ends.of(JobId("job2"), "2")
    assert len(ends.certain) == MAX_ENDS
    assert ends.totals[EndReason.LEASE_RAN_OUT] == MAX_ENDS + 2
    before = ends.certain
    more = [JobEnd(A, f"more{number}", "", EndReason.DEREGISTERED, WALL) for number in range(3)]
    ends.confirm(*more)
    assert ends_since(before, ends.certain) == tuple(more)
    assert ends_since((), before) == before


def test_the_latest_of_the_ends_are_saved_and_are_the_same_until_there_are_others() -> None:
    ends = Ends()
    for number in range(MAX_SAVED + 2):
        ends.add(JobEnd(A, str(number), "", EndReason.DEREGISTERED, WALL))
    saved = ends.saved
    assert saved.keys() == {str(number) for number in range(2, MAX_SAVED + 2)}
    assert ends.saved is saved
    ends.take_back("5")
    assert "5" not in ends.saved


# ---- reports


def test_iterations_that_were_reported_before_are_not_counted_again(registry: JobRegistry, job: Job) -> None:
    assert registry.report(A, job.uid, times(3, 4), 0.0) == times(3, 4)
    assert registry.report(A, job.uid, times(3, 4), 0.0) == ()
    assert registry.report(A, job.uid, times(1, 4, 6), 0.0) == times(6)
    assert job.vitals.reported.iterations == 3
    assert job.vitals.reported.last_index == 6
    assert len(job.vitals.reported.recent_communication_s) == 3
    assert registry.report(A, job.uid, (), 0.0) == ()


# ---- after a restart


def test_after_a_restart_owners_learn_how_their_registrations_ended(registry: JobRegistry, job: Job) -> None:
    registry.deregister(A, job.uid, WALL)
    new = registry.register(RegisterJob(spec(), tenant="red"), 0.0)
    other = registry.register(RegisterJob(spec("b", (3, 4))), 0.0)
    registry.register(RegisterJob(spec("b", (3, 4)), take_over=True), 0.0)
    restarted = JobRegistry(max_jobs=3)
    jobs = tuple(one.registration for one in registry.jobs.values())
    assert restarted.take_saved(SavedState(registered(*jobs), ends=registry.ends.saved), 0.0) == []
    with pytest.raises(NotFound, match="was deregistered; another registration has the id now") as error:
        restarted.renew(A, job.uid, 1.0)
    assert error.value.reason is Gone.JOB_DEREGISTERED
    with pytest.raises(NotFound) as error:
        restarted.renew(JobId("b"), other.uid, 1.0)
    assert error.value.reason is Gone.JOB_TAKEN_OVER
    assert [end.uid for end in restarted.ends.certain] == [job.uid, other.uid]
    assert set(restarted.ends.totals.values()) == {0}, "they did not end since the start"
    assert restarted.deregister(A, job.uid, WALL) is None, "the answer to a repetition may have been lost"
    assert restarted.renew(A, new.uid, 1.0) == 60.0
    assert restarted.jobs[A].registration == new.registration


def test_connections_of_saved_jobs_are_theirs_again() -> None:
    of_job = frozenset({Connected("10.0.0.1", 1, "10.0.0.2", 2), Connected("10.0.0.2", 3, "10.0.0.1", 4)})
    saved = Registration(spec(reports_connections=True))
    registry = JobRegistry(max_jobs=3)
    assert registry.take_saved(SavedState(registered(saved), connections={A: of_job}), 0.0) == []
    assert registry.connections == {A: of_job}
    assert len(registry.jobs[A].dividing.connections["10.0.0.1", "10.0.0.2"]) == 2
    other = registry.register(RegisterJob(spec("b", reports_connections=True)), 0.0)
    places = {Connected("10.0.0.1", 7, "10.0.0.2", 7): 0, Connected("10.0.0.1", 1, "10.0.0.2", 2): 1}
    with pytest.raises(Conflict, match="job 'a' has reported it") as error:
        registry.report_connections(other.id, "10.0.0.1", frozenset(places), other.uid, places=places)
    assert error.value.about == {"jobId": "b", "otherJobId": "a", "field": "connections[1]"}


def test_a_job_that_did_not_announce_reports_of_connections_reports_none(registry: JobRegistry, job: Job) -> None:
    with pytest.raises(NotAnnounced, match="without reports_connections") as error:
        registry.report_connections(A, "10.0.0.1", frozenset(), job.uid)
    assert error.value.about == {"jobId": "a"}


def test_a_queue_pair_of_rocev2_is_of_one_job_whichever_end_reports_it() -> None:
    """A queue pair has the same source port in both directions, and destination port 4791."""
    registry = JobRegistry(max_jobs=3)
    of_rocev2 = [spec(name, reports_connections=True, transport="roce_v2") for name in "ab"]
    one, two = (registry.register(RegisterJob(of), 0.0) for of in of_rocev2)
    tcp = registry.register(RegisterJob(spec("c", reports_connections=True)), 0.0)
    there, back = Connected("10.0.0.1", 50_001, "10.0.0.2", 4791), Connected("10.0.0.2", 50_001, "10.0.0.1", 4791)
    registry.report_connections(one.id, "10.0.0.1", frozenset({there}), one.uid)
    for address, connection in (("10.0.0.1", there), ("10.0.0.2", back)):
        with pytest.raises(Conflict, match="job 'a' has reported it"):
            registry.report_connections(two.id, address, frozenset({connection}), two.uid)
    registry.report_connections(one.id, "10.0.0.2", frozenset({back}), one.uid)
    registry.report_connections(tcp.id, "10.0.0.1", frozenset({there}), tcp.uid)
    registry.report_connections(one.id, "10.0.0.1", frozenset(), one.uid)
    registry.report_connections(one.id, "10.0.0.2", frozenset(), one.uid)
    registry.report_connections(two.id, "10.0.0.2", frozenset({back}), two.uid)


def test_connections_count_like_virtual_links() -> None:
    registry = JobRegistry(max_jobs=3, max_virtual_links=6)
    job = registry.register(RegisterJob(spec(reports_connections=True)), 0.0)
    registry.register(RegisterJob(spec("b", (3, 4))), 0.0)

    def report(count: int, quota: Quota = NO_QUOTA) -> None:
        reported = frozenset(Connected("10.0.0.1", port, "10.0.0.2", 9) for port in range(1, count + 1))
        registry.report_connections(job.id, "10.0.0.1", reported, job.uid, quota)

    for _ in range(2):
        report(4)
        with pytest.raises(Exhausted, match=r"has 5 connections .*; the other jobs have 2"):
            report(5)
    report(3, Quota(max_virtual_links=2))  # a lower quota than before
    report(1)
    with pytest.raises(Exhausted, match="its quota max_virtual_links is 3"):
        report(4, Quota(max_virtual_links=3))
    registry.register(RegisterJob(spec("c", (5, 6))), 0.0)
    with pytest.raises(Exhausted, match="the other jobs have 4"):
        report(4)


def test_connections_that_an_update_keeps_count_with_the_names_that_it_adds() -> None:
    registry = JobRegistry(max_jobs=3, max_virtual_links=4)
    job = registry.register(RegisterJob(spec(reports_connections=True)), 0.0)
    reported = frozenset(Connected("10.0.0.1", port, "10.0.0.2", 9) for port in range(1, 5))
    registry.report_connections(job.id, "10.0.0.1", reported, job.uid)
    more = spec(reports_connections=True, endpoints=[f"10.0.0.{host}" for host in range(1, 10)])
    expected = r"has 4 connections \(each counts as a virtual link\), and its names take the memory of 1 more; "
    with pytest.raises(Exhausted, match=expected):
        registry.update([UpdateJob(more, owner=job.uid)])
    assert registry.jobs[A].spec == job.spec
    registry.report_connections(job.id, "10.0.0.1", frozenset(), job.uid)
    registry.update([UpdateJob(more, owner=job.uid)])
    assert registry.jobs[A].spec == more


def test_saved_jobs_count_towards_the_limit_of_virtual_links() -> None:
    registry = JobRegistry(max_jobs=3, max_virtual_links=4)
    assert registry.take_saved(SavedState(registered(Registration(spec()))), 0.0) == []
    with pytest.raises(Exhausted, match="makes 3 virtual links; the other jobs have 2"):
        registry.register(RegisterJob(spec("b", (3, 4, 5))), 0.0)
    registry.register(RegisterJob(spec("b", (3, 4))), 0.0)
    assert JobRegistry(3, 1).take_saved(SavedState(registered(Registration(spec()))), 0.0) == [
        "job 'a': job 'a' makes 2 virtual links; the other jobs have 0, and at most 1 are allowed "
        "(jobs.max_virtual_links)"
    ]


def test_every_saved_job_that_cannot_be_accepted_is_named() -> None:
    wrong = spec("c", (5, 6))
    wrong = wrong.model_copy(update={"transfers": wrong.transfers * 40_000})
    specs = [spec("a"), spec("b"), wrong, spec("d", (7, 8)), spec("e", (9, 10)), spec("f", (11, 12))]
    saved = SavedState(registered(*map(Registration, specs)))
    problems = JobRegistry(max_jobs=3).take_saved(saved, 0.0)
    starts = ["job 'b': job 'b' cannot announce", "job 'c': spec.transfers: ", "job 'f': 3 jobs are"]
    assert [problem.startswith(start) for problem, start in zip(problems, starts, strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("transport", "reported"),
    [
        pytest.param("roce_v2", {Connected("10.0.0.1", 50_001, "10.0.0.2", 50_002)}, id="to another port than 4791"),
        pytest.param("tcp", {Connected("10.0.0.1", port, "10.0.0.2", 9) for port in range(1, 6)}, id="more than fit"),
    ],
)
def test_saved_connections_that_are_not_accepted_any_more_are_no_reason_not_to_start(
    transport: str, reported: set[Connected]
) -> None:
    """Older versions accepted such connections. The jobs are loaded, but these connections are dropped."""
    registry = JobRegistry(max_jobs=3, max_virtual_links=6)
    jobs = spec(reports_connections=True, transport=transport), spec("b", (3, 4))
    saved = SavedState(registered(*map(Registration, jobs)), connections={A: frozenset(reported)})
    assert registry.take_saved(saved, 0.0) == []
    assert registry.jobs.keys() == {A, JobId("b")}
    assert registry.connections == {}


# ---- random actions


class Life:
    """Registry with two owners, the uids that the owners got for their jobs, and a stranger."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.registry = JobRegistry(max_jobs=4)
        self.now = 0.0
        self.mine: dict[tuple[str, JobId], str] = {}
        """Newest uid that an owner got for a job, by owner and job id."""
        self.ended: dict[str, EndReason] = {}

    def step(self) -> None:
        self.now += self.draw.choice((0.0, 1.0, 20.0))
        owner, job_id = self.draw.choice(("red", "blue")), JobId(self.draw.choice("abcde"))
        hosts = self.draw.choice(((1, 2), (2, 3), (1, 2, 3), (4, 5)))
        action = self.draw.choice(
            (self.register, self.register, self.take_over, self.use, self.update, self.connect, self.leave, self.wait)
        )
        action(owner, job_id, spec(job_id, hosts, reports_connections=self.draw.random() < 0.3))
        self.strange(job_id)
        self.check()

    def register(self, owner: str, job_id: JobId, of_job: JobSpec, take_over: bool = False) -> None:
        held = self.registry.jobs.get(job_id)
        believed = self.mine.get((owner, job_id))
        try:
            job = self.registry.register(RegisterJob(of_job, believed, take_over), self.now)
        except (AlreadyExists, Conflict, Exhausted):
            assert self.registry.jobs.get(job_id) is held
            return
        if held and job.uid != held.uid:
            assert take_over
            self.ended[held.uid] = EndReason.TAKEN_OVER
        assert held is None or take_over or held.uid == believed
        self.mine[owner, job_id] = job.uid

    def take_over(self, owner: str, job_id: JobId, of_job: JobSpec) -> None:
        self.register(owner, job_id, of_job, take_over=True)

    def use(self, owner: str, job_id: JobId, _: JobSpec) -> None:
        uid = self.mine.get((owner, job_id))
        job = self.registry.jobs.get(job_id)
        if job and job.uid == uid:
            self.registry.renew(job_id, uid, self.now)
            self.registry.report(job_id, uid, times(self.draw.randrange(5)), 0.0)
            return
        with pytest.raises(NotFound if uid or not job else WrongLeaseToken) as raised:
            self.registry.renew(job_id, uid, self.now)
        if uid:
            assert isinstance(raised.value, NotFound)
            assert raised.value.reason.value.lower().endswith(self.ended[uid].value)

    def update(self, owner: str, job_id: JobId, of_job: JobSpec) -> None:
        uid = self.mine.get((owner, job_id))
        before = self.registry.jobs
        try:
            (job,) = self.registry.update([UpdateJob(of_job, owner=uid)])
        except (NotFound, WrongLeaseToken, Conflict):
            assert self.registry.jobs is before
        else:
            assert job.uid == uid
            assert job.spec == of_job

    def connect(self, owner: str, job_id: JobId, _: JobSpec) -> None:
        ports = range(5000, 5000 + self.draw.randrange(4))
        reported = frozenset(Connected("10.0.0.1", port, "10.0.0.2", self.draw.choice((1, 2))) for port in ports)
        with suppress(NotFound, WrongLeaseToken, Conflict, InvalidInput):
            self.registry.report_connections(job_id, "10.0.0.1", reported, self.mine.get((owner, job_id)))

    def leave(self, owner: str, job_id: JobId, _: JobSpec) -> None:
        uid = self.mine.get((owner, job_id))
        before = self.registry.known(job_id)
        try:
            end = self.registry.deregister(job_id, uid, WALL)
        except (NotFound, WrongLeaseToken):
            assert uid is None or self.ended[uid] is not EndReason.DEREGISTERED
            return
        assert uid
        if end and self.draw.random() < 0.3:
            self.registry.restore({job_id: before})
        elif end:
            self.ended[uid] = EndReason.DEREGISTERED
        else:
            assert self.ended[uid] is EndReason.DEREGISTERED

    def wait(self, *_: object) -> None:
        self.now += 40.0
        before = self.registry.jobs
        for job_id in self.registry.expire(self.now, WALL):
            self.ended[before[job_id].uid] = EndReason.LEASE_RAN_OUT

    def strange(self, job_id: JobId) -> None:
        """Assert that no call of a stranger changes anything."""
        before = self.registry.jobs, {job.uid: replace(job.vitals) for job in self.registry.jobs.values()}
        for owner in (None, "", "stranger"):
            for call in CALLS.values():
                with pytest.raises(WrongLeaseToken if job_id in self.registry.jobs else NotFound):
                    call(self.registry, job_id, owner)
        if job_id in self.registry.jobs:
            with pytest.raises(SignalboxError):
                self.registry.register(RegisterJob(self.registry.jobs[job_id].spec, "stranger"), self.now)
        assert self.registry.jobs is before[0]
        for job in self.registry.jobs.values():
            known = before[1][job.uid]
            assert (job.vitals.lease_ends_at, job.vitals.reported) == (known.lease_ends_at, known.reported)

    def check(self) -> None:
        jobs = self.registry.jobs.values()
        pairs = [pair for job in jobs for pair in job.pairs if not job.spec.reports_connections]
        assert len(pairs) == len(set(pairs)), "a pair is announced once"
        connections = [one for of_job in self.registry.connections.values() for one in of_job]
        assert len(connections) == len(set(connections)), "a connection is reported by one job"
        assert self.registry.connections.keys() <= self.registry.jobs.keys()
        assert len(jobs) <= 4
        assert self.ended.keys().isdisjoint(job.uid for job in jobs)
        for uid, reason in self.ended.items():
            end = next(end for job_id in "abcde" if (end := self.registry.ends.of(JobId(job_id), uid)))
            assert end.reason is reason


@pytest.mark.parametrize("seed", with_long(range(5), range(20)))
def test_whatever_happens_jobs_are_their_owners(seed: int) -> None:
    life = Life(seed)
    for _ in range(400):
        life.step()
    assert set(life.ended.values()) == set(EndReason), "everything has happened"
