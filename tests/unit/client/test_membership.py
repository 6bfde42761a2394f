"""Calls of a job to its controller, also when that does not answer, forgets the job, or gives it to another owner."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from signalbox.client import Unreachable
from signalbox.errors import (
    AlreadyExists,
    Conflict,
    Exhausted,
    Gone,
    InvalidInput,
    NotAllowed,
    NotFound,
    SignalboxError,
    Unauthenticated,
    WrongLeaseToken,
)
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.jobs.spec import JobSpec
from signalbox.membership import KEPT_ITERATIONS, MAX_PAUSE_S, MIN_PAUSE_S, REPORT_S, Ended, Membership

LEASE_S = 60.0
HOUR_S = 3600.0
THERE, BACK = Connected("10.0.1.1", 40_001, "10.0.2.1", 50_001), Connected("10.0.2.1", 40_002, "10.0.1.1", 50_002)


def spec(**more: object) -> JobSpec:
    return JobSpec.parse({"job_id": "job", "endpoints": ["10.0.1.1", "10.0.2.1"], "lease_s": LEASE_S, **more})


@dataclass
class FakeController:
    """One job as the controller keeps it. ``away``: what every call raises."""

    away: Exception | None = None
    held: str = ""  # token of the registration that has the job's id
    spec: JobSpec | None = None  # of that registration
    gone: Gone = Gone.NO_SUCH_JOB
    registrations: list[dict[str, Any]] = field(default_factory=list)
    renewals: int = 0
    calls: int = 0
    reported: list[int] = field(default_factory=list)
    told: list[tuple[str, set[Connected]]] = field(default_factory=list)
    refuses_iterations: bool = False
    refuses_updates: Exception | None = None
    updates: list[JobSpec] = field(default_factory=list)
    ended: int = 0
    opened: int = 0
    closed: int = 0

    def connect(self) -> FakeController:
        self.opened += 1
        return self

    def close(self) -> None:
        self.closed += 1

    def register_job(self, spec: JobSpec, *, lease_token: str, request_id: str, take_over: bool) -> Any:
        self._called()
        if self.held and self.held != lease_token and not take_over:
            raise AlreadyExists("job 'job' belongs to another registration", {"heldBy": "other"})
        if self.held and self.held == lease_token:
            if spec != self.spec:
                raise AlreadyExists("job 'job' is registered with another spec", {"heldBy": "caller"})
            return SimpleNamespace(lease_token=self.held)
        self.registrations.append({"request_id": request_id, "take_over": take_over, "spec": spec})
        self.held, self.spec = f"token {len(self.registrations)}", spec
        return SimpleNamespace(lease_token=self.held)

    def update_job(self, spec: JobSpec, *, lease_token: str) -> None:
        self._called(lease_token)
        if self.refuses_updates:
            raise self.refuses_updates
        self.spec = spec
        self.updates.append(spec)

    def renew_lease(self, job_id: str, lease_token: str) -> float:
        self._called(lease_token, job_id)
        self.renewals += 1
        return LEASE_S

    def report_iterations(self, job_id: str, iterations: Sequence[IterationTime], lease_token: str) -> None:
        self._called(lease_token, job_id)
        if self.refuses_iterations:
            raise InvalidInput.of("iterations[0].duration", "a time above 0 is needed")
        self.reported += [iteration.index for iteration in iterations]

    def report_connections(self, job_id: str, address: str, connections: Iterable[Connected], lease_token: str) -> None:
        self._called(lease_token, job_id)
        self.told.append((address, set(connections)))

    def deregister_job(self, job_id: str, lease_token: str) -> None:
        self._called(lease_token, job_id)
        self.held = ""
        self.ended += 1

    def forget(self, gone: Gone = Gone.LEASE_RAN_OUT) -> None:
        self.held, self.gone = "", gone

    def _called(self, token: str | None = None, job_id: str = "job") -> None:
        self.calls += 1
        assert job_id == "job"
        if self.away:
            raise self.away
        if token is not None and not self.held:
            raise NotFound("there is no job 'job'", self.gone)
        if token is not None and token != self.held:
            raise WrongLeaseToken("the lease token is not the job's")


@dataclass
class Training:
    """A membership whose rounds come when they are due, on a clock that only they move."""

    controller: FakeController
    spec: JobSpec = field(default_factory=spec)
    connections: Callable[[], frozenset[Connected] | None] = lambda: None
    take_over: bool = False
    hands_over: bool = False
    now: float = 1000.0
    ended: list[Ended] = field(default_factory=list)
    contacts: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        connect = self.controller.connect
        self.membership = Membership(
            connect,
            self.spec,
            self.ended.append,
            self.connections,
            self.take_over,
            self._on_contact,
            self.hands_over,
        )
        self.over = False

    def _on_contact(self) -> None:
        self.contacts.append(self.membership.in_touch)

    def report(self, *indices: int) -> None:
        for index in indices:
            self.membership.report(IterationTime(index, 1.0, 0.9))

    def round(self) -> float | None:
        """Returns the pause after it."""
        pause_s = self.membership.round(self.now)
        self.over = pause_s is None
        self.now += pause_s or 0.0
        return pause_s

    def go_on(self, for_s: float) -> list[float]:
        """Returns the pauses."""
        until, pauses = self.now + for_s, []
        while self.now < until and not self.over:
            pauses.append(self.round() or 0.0)
        return pauses


@pytest.fixture
def controller() -> FakeController:
    return FakeController()


@pytest.fixture
def training(controller: FakeController) -> Training:
    return Training(controller)


UNREACHABLE = Unreachable("no answer from the controller at 10.0.0.1:50051: it took too long")


def test_a_job_is_registered_once_and_its_lease_renewed(controller: FakeController, training: Training) -> None:
    training.go_on(10 * LEASE_S)
    assert [one["spec"] for one in controller.registrations] == [training.spec]
    assert 38 <= controller.renewals <= 41
    assert controller.opened == 1
    assert training.membership.registered


def test_a_short_lease_is_renewed_in_time(controller: FakeController, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.client.test_membership.LEASE_S", 1.0)
    training = Training(controller, spec(lease_s=1.0))
    assert max(training.go_on(20.0)) <= 0.25


def test_nothing_is_sent_while_there_is_nothing_to_say(controller: FakeController, training: Training) -> None:
    training.round()
    calls = controller.calls
    training.go_on(LEASE_S / 4 - REPORT_S)
    assert controller.calls == calls


@pytest.mark.parametrize("left_s", [math.nan, math.inf, 8e10, -1.0, 0.0])
def test_answers_that_cannot_be_put_no_renewal_off(
    left_s: float, controller: FakeController, training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew = controller.renew_lease

    def renewed(*job: str) -> float:
        renew(*job)
        return left_s

    monkeypatch.setattr(controller, "renew_lease", renewed)
    training.membership._report_s = math.inf
    pauses = training.go_on(10 * LEASE_S)
    assert controller.renewals >= 38
    assert all(MIN_PAUSE_S <= pause_s <= LEASE_S / 4 for pause_s in pauses)


CHANGED = spec(transfers=[{"src": 0, "dst": 1, "bytes_per_iteration": 1000}])


def test_a_job_is_announced_as_it_was_at_first_and_then_updated_once(
    controller: FakeController, training: Training
) -> None:
    """The answer to the first registration may have been lost: the same request must say the same."""
    controller.away = UNREACHABLE
    training.round()
    training.membership.update(CHANGED)
    controller.away = None
    training.go_on(LEASE_S)
    assert [one["spec"] for one in controller.registrations] == [training.spec]
    assert controller.updates == [CHANGED]
    controller.forget()
    training.go_on(LEASE_S)
    assert [one["spec"] for one in controller.registrations] == [training.spec, CHANGED]
    assert controller.updates == [CHANGED]


@pytest.mark.parametrize("why", [InvalidInput.of("transfers", "is wrong"), Conflict("a pair is of another job", {})])
def test_a_job_whose_update_is_refused_stays_as_it_was(
    why: Exception, controller: FakeController, training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    controller.refuses_updates = why
    training.round()
    training.membership.update(CHANGED)
    training.report(0)
    training.go_on(LEASE_S)
    assert controller.reported == [0]
    assert caplog.text.count("stays announced as it was") == 1
    controller.forget()
    training.go_on(LEASE_S)
    assert [one["spec"] for one in controller.registrations] == [training.spec] * 2


def test_iterations_are_reported_soon_once_and_in_order(controller: FakeController, training: Training) -> None:
    training.round()
    for index in range(0, 50, 5):
        training.report(*range(index, index + 5))
        assert 0 < (training.round() or 0) <= REPORT_S
    assert controller.reported == list(range(50))


def test_what_threads_report_at_the_same_time_is_put_in_order(controller: FakeController, training: Training) -> None:
    training.report(1, 0, 3, 2)
    training.round()
    assert controller.reported == [0, 1, 2, 3]


def test_iterations_that_the_controller_refuses_are_not_sent_again(
    controller: FakeController, training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    controller.refuses_iterations = True
    for index in range(5):
        training.report(index)
        training.round()
    controller.refuses_iterations = False
    training.report(5)
    training.round()
    assert controller.reported == [5]
    assert [record.getMessage() for record in caplog.records] == [
        "job 'job': iterations are left out, the training goes on: iterations[0].duration: a time above 0 is needed"
    ]
    assert training.membership.registered


# ---- outages


def test_pauses_grow_while_the_controller_is_away_and_there_is_one_line(
    controller: FakeController, training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    training.round()
    controller.away = UNREACHABLE
    training.report(0)
    pauses = training.go_on(HOUR_S)
    assert 0.75 <= pauses[0] <= 1.0
    assert pauses[-1] >= 0.75 * MAX_PAUSE_S
    assert len(pauses) < HOUR_S / MAX_PAUSE_S / 0.75 + 10
    assert [record.getMessage() for record in caplog.records] == [
        f"job 'job': not in touch with the controller, the training goes on: {UNREACHABLE}"
    ]
    assert not training.ended


@pytest.mark.parametrize("lease_s", [3.0, 15.0, 60.0])
def test_a_controller_that_comes_back_within_the_lease_is_told_before_its_end(
    controller: FakeController, lease_s: float
) -> None:
    training = Training(controller, spec(lease_s=lease_s))
    training.round()
    controller.away = UNREACHABLE
    training.report(0)
    assert max(training.go_on(0.8 * lease_s - REPORT_S)) <= max(1.0, lease_s / 6)


def test_a_controller_that_comes_back_hears_of_the_time_between(controller: FakeController, training: Training) -> None:
    training.round()
    controller.away = UNREACHABLE
    training.report(0)
    training.go_on(15.0)
    training.report(1)
    training.go_on(15.0)
    controller.away = None
    training.go_on(MAX_PAUSE_S)
    assert controller.reported == [0, 1]
    assert len(controller.registrations) == 1
    assert training.contacts == [True, False, True]


def test_each_outage_has_its_line(
    controller: FakeController, training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        training.go_on(LEASE_S)
        controller.away = UNREACHABLE
        training.go_on(LEASE_S)
        controller.away = None
    assert len(caplog.records) == 3


def test_the_latest_iterations_survive_a_long_outage(controller: FakeController, training: Training) -> None:
    controller.away = UNREACHABLE
    for index in range(KEPT_ITERATIONS + 500):
        training.report(index)
        if index % 100 == 0:
            training.round()
    controller.away = None
    training.go_on(MAX_PAUSE_S)
    assert controller.reported == list(range(500, KEPT_ITERATIONS + 500))


def test_a_client_that_failed_is_not_used_again(controller: FakeController, training: Training) -> None:
    controller.away = UNREACHABLE
    training.go_on(30.0)
    assert controller.opened == controller.closed > 3


@pytest.mark.parametrize(
    "error",
    [
        Unauthenticated("who?"),
        NotAllowed("a reader may not"),
        Conflict("another job has announced the pair"),
        Exhausted("too many jobs"),
        SignalboxError("INTERNAL: a fault"),
        OSError("no descriptor is left"),
        ZeroDivisionError("a fault of ours"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_the_controller_says_the_job_is_announced_when_it_can_be(
    controller: FakeController, training: Training, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    controller.away = error
    training.go_on(HOUR_S)
    controller.away = None
    training.go_on(MAX_PAUSE_S)
    assert training.membership.registered
    assert len(caplog.records) == 1
    assert str(error) in caplog.text


def test_files_that_are_wrong_are_read_again(controller: FakeController, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(controller)
    broken = True

    def connect() -> FakeController:
        if broken:
            raise InvalidInput.of("ca.pem", "No such file or directory")
        return controller

    monkeypatch.setattr(training.membership, "_connect", connect)
    training.go_on(30.0)
    assert not training.ended
    broken = False
    training.go_on(MAX_PAUSE_S)
    assert training.membership.registered


# ---- registrations that end


@pytest.mark.parametrize("gone", [Gone.LEASE_RAN_OUT, Gone.NO_SUCH_JOB])
def test_a_forgotten_job_is_registered_again(controller: FakeController, training: Training, gone: Gone) -> None:
    training.round()
    controller.forget(gone)
    training.report(0)
    training.go_on(2 * REPORT_S)
    assert controller.reported == [0]
    assert len({one["request_id"] for one in controller.registrations}) == 2, "a request id names one registration"


def test_an_outage_longer_than_the_lease_ends_in_a_new_registration(
    controller: FakeController, training: Training
) -> None:
    training.round()
    controller.away = UNREACHABLE
    training.go_on(HOUR_S)
    controller.away = None
    controller.forget()
    training.go_on(2 * MAX_PAUSE_S)
    assert training.membership.registered
    assert training.contacts == [True, False, True]


def test_a_registration_whose_answer_was_lost_is_repeated(controller: FakeController, training: Training) -> None:
    asked = []
    answers = controller.register_job

    def lose(spec: JobSpec, **how: Any) -> Any:
        asked.append(how["request_id"])
        if len(asked) == 1:
            raise UNREACHABLE
        return answers(spec, **how)

    controller.register_job = lose  # type: ignore[method-assign]
    training.go_on(5.0)
    assert asked == asked[:1] * 2


@pytest.mark.parametrize(
    ("gone", "ended"),
    [(Gone.JOB_TAKEN_OVER, Ended.TAKEN_OVER), (Gone.JOB_DEREGISTERED, Ended.DEREGISTERED)],
)
def test_a_job_that_was_taken_over_or_ended_by_an_operator_is_left_alone(
    controller: FakeController,
    training: Training,
    gone: Gone,
    ended: Ended,
    caplog: pytest.LogCaptureFixture,
) -> None:
    training.round()
    controller.forget(gone)
    training.go_on(HOUR_S)
    training.membership.leave()
    assert training.ended == [ended]
    assert len(controller.registrations) == len(caplog.records) == 1
    assert controller.opened == controller.closed == 1
    assert not training.membership.registered


@pytest.mark.parametrize(("hands_over", "level"), [(False, logging.WARNING), (True, logging.INFO)])
def test_what_leaves_its_job_to_a_better_announcement_does_not_warn_of_it(
    controller: FakeController, hands_over: bool, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "signalbox")
    training = Training(controller, hands_over=hands_over)
    training.round()
    controller.forget(Gone.JOB_TAKEN_OVER)
    training.go_on(LEASE_S)
    assert [record.levelno for record in caplog.records] == [logging.INFO, level]


def test_a_job_whose_lease_ran_out_and_whose_id_has_another_owner_now_is_left_to_it(
    controller: FakeController, training: Training
) -> None:
    training.take_over = True
    training.round()
    controller.forget()
    training.report(0)
    training.round()
    controller.held = "another's"
    training.go_on(HOUR_S)
    assert training.ended == [Ended.TAKEN_OVER]
    assert controller.held == "another's"


def test_a_token_that_a_new_controller_does_not_know_is_not_fought_for(
    controller: FakeController, training: Training
) -> None:
    training.round()
    controller.held = "another's"
    training.go_on(HOUR_S)
    training.membership.leave()
    assert training.ended == [Ended.TAKEN_OVER]
    assert controller.held == "another's"


def test_an_id_that_is_taken_is_waited_for_or_taken_over(
    controller: FakeController, training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    controller.held = "that of a run that was killed"
    assert max(training.go_on(HOUR_S)) <= LEASE_S / 6
    assert not training.membership.registered
    assert len(caplog.records) == 1
    controller.forget()
    training.go_on(LEASE_S / 6)
    assert training.membership.registered

    other = FakeController(held="that of a run that was killed")
    taking = Training(other, take_over=True)
    taking.round()
    other.forget()
    taking.go_on(LEASE_S)
    assert [one["take_over"] for one in other.registrations] == [True, False], "only at first"


def test_a_refused_spec_is_told_once_with_its_fields_and_not_sent_again(
    controller: FakeController, training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    controller.away = InvalidInput.of("collectives[0].bytes_per_iteration", "must be at least 8")
    training.go_on(HOUR_S)
    assert training.ended == [Ended.REFUSED]
    assert controller.calls == len(caplog.records) == 1
    assert "collectives[0].bytes_per_iteration: must be at least 8" in caplog.text
    assert training.membership.first_error is controller.away


# ---- connections


def test_connections_are_reported_once_they_are_known_when_they_change_and_anew(controller: FakeController) -> None:
    opened: list[frozenset[Connected] | None] = [None]
    training = Training(controller, spec(reports_connections=True), lambda: opened[-1])
    training.go_on(2 * REPORT_S)
    assert not controller.told
    opened.append(frozenset({THERE, BACK}))
    training.go_on(2 * REPORT_S)
    both = [("10.0.1.1", {THERE}), ("10.0.2.1", {BACK})]
    assert controller.told == both
    training.go_on(LEASE_S)
    assert controller.told == both
    controller.forget()
    training.go_on(LEASE_S)
    assert controller.told == both * 2
    opened.append(frozenset({BACK}))
    training.go_on(REPORT_S)
    assert controller.told[4:] == [("10.0.1.1", set()), ("10.0.2.1", {BACK})]


def test_a_job_that_does_not_report_its_connections_keeps_them(controller: FakeController) -> None:
    training = Training(controller, connections=lambda: frozenset({THERE}))
    training.go_on(LEASE_S)
    assert not controller.told


# ---- the end


def test_the_job_is_gone_and_its_last_iterations_reported_after_training(
    controller: FakeController, training: Training
) -> None:
    training.round()
    training.report(0)
    training.membership.leave()
    assert not controller.held
    assert controller.reported == [0]
    assert controller.opened == controller.closed


@pytest.mark.parametrize("refused", [True, False])
def test_the_end_of_the_program_needs_no_controller(
    controller: FakeController, training: Training, refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    training.round()
    training.report(0)
    if refused:
        controller.refuses_iterations = True
    else:
        controller.away = UNREACHABLE
    caplog.set_level(logging.ERROR)
    training.membership.leave()
    assert bool(controller.held) is not refused
    assert not caplog.records


def test_nothing_follows_after_a_cancelled_call(
    controller: FakeController, training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    training.round()
    controller.away = SignalboxError("CANCELLED: the channel was closed")
    training.membership.cancel()
    training.report(0)
    assert training.round() is None
    assert not caplog.records


# ---- changes, releases, and processes that come after each other


OTHER_HOST = ["10.0.1.1", "10.0.3.1"]


def again(controller: FakeController, now: JobSpec, token: str) -> tuple[Membership, list[Ended]]:
    """The membership of a process that was started anew, after its first round."""
    ended: list[Ended] = []
    membership = Membership(controller.connect, now, ended.append, token=token)
    membership.round(5000.0)
    return membership, ended


def test_a_changed_spec_is_told_once(controller: FakeController, training: Training) -> None:
    training.round()
    changed = spec(endpoints=OTHER_HOST)
    training.membership.update(changed)
    training.go_on(HOUR_S)
    assert controller.updates == [changed]
    assert len(controller.registrations) == 1


def test_a_spec_that_changes_before_the_job_is_registered_follows_the_one_that_may_have_been(
    controller: FakeController, training: Training
) -> None:
    """The answer to the first call may be what was lost: it is repeated as it was."""
    controller.away = UNREACHABLE
    training.round()
    training.membership.update(changed := spec(endpoints=OTHER_HOST))
    controller.away = None
    training.go_on(MAX_PAUSE_S)
    assert [one["spec"] for one in controller.registrations] == [training.spec]
    assert controller.updates == [changed]


def test_a_change_that_is_refused_leaves_the_job_as_it_was(
    controller: FakeController, training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    training.round()
    controller.refuses_updates = InvalidInput.of("endpoints", "too many")
    training.membership.update(spec(endpoints=OTHER_HOST))
    training.go_on(HOUR_S)
    controller.forget()
    training.go_on(LEASE_S)
    assert [one["spec"] for one in controller.registrations] == [training.spec, training.spec]
    assert [record.getMessage() for record in caplog.records] == [
        "job 'job' stays announced as it was, the training goes on: endpoints: too many"
    ]
    controller.refuses_updates = None
    training.membership.update(changed := spec(endpoints=OTHER_HOST))
    training.go_on(LEASE_S)
    assert controller.updates == [changed]


def test_a_process_that_has_the_token_of_the_one_before_renews_its_registration(
    controller: FakeController, training: Training
) -> None:
    training.round()
    membership, ended = again(controller, training.spec, controller.held)
    assert membership.registered
    assert not ended
    assert len(controller.registrations) == 1


def test_a_spec_that_changed_between_two_processes_is_updated(controller: FakeController, training: Training) -> None:
    training.round()
    membership, ended = again(controller, changed := spec(endpoints=OTHER_HOST), controller.held)
    assert membership.registered
    assert not ended
    assert (controller.updates, len(controller.registrations)) == ([changed], 1)


def test_a_job_taken_over_between_two_processes_is_left_alone(controller: FakeController, training: Training) -> None:
    training.round()
    token, controller.held = controller.held, "the program's"
    membership, ended = again(controller, training.spec, token)
    assert ended == [Ended.TAKEN_OVER]
    assert not membership.registered


def test_tokens_are_told(controller: FakeController) -> None:
    told: list[str] = []
    membership = Membership(controller.connect, spec(), lambda _: None, on_token=told.append)
    membership.round(0.0)
    controller.forget()
    membership.round(LEASE_S)
    membership.round(LEASE_S + 1)
    assert told == ["token 1", "token 2"]


def test_a_release_is_tried_until_the_controller_is_back(controller: FakeController, training: Training) -> None:
    training.round()
    controller.away = UNREACHABLE
    training.membership.release()
    training.go_on(LEASE_S / 2)
    assert not training.over
    controller.away = None
    training.go_on(LEASE_S)
    assert training.over
    assert controller.ended == 1


def test_a_release_is_given_up_when_the_lease_has_run_out(controller: FakeController, training: Training) -> None:
    training.round()
    controller.away = UNREACHABLE
    training.membership.release()
    assert sum(training.go_on(HOUR_S)) <= LEASE_S + MAX_PAUSE_S
    assert training.over


@pytest.mark.parametrize("held", ["", "another's"])
def test_what_is_gone_is_released(controller: FakeController, training: Training, held: str) -> None:
    training.round()
    controller.held = held
    training.membership.release()
    assert training.round() is None
    assert (controller.held, controller.ended) == (held, 0)


def test_a_release_without_a_registration_calls_nothing(controller: FakeController, training: Training) -> None:
    training.membership.release()
    assert training.round() is None
    assert controller.calls == 0


def test_a_release_is_called_off(controller: FakeController, training: Training) -> None:
    training.round()
    controller.away = UNREACHABLE
    training.membership.release()
    training.round()
    training.membership.update(training.spec)
    controller.away = None
    training.go_on(LEASE_S)
    assert training.membership.registered
    assert (controller.ended, len(controller.registrations)) == (0, 1)


def test_a_job_that_reports_nothing_needs_no_rounds_but_renewals(controller: FakeController) -> None:
    membership = Membership(controller.connect, spec(), lambda _: None, report_s=math.inf)
    assert membership.round(0.0) == LEASE_S / 4
