"""Calls of a job whose controller does not answer, forgets the job, or gives it to another owner."""

from typing import Any

import pytest

from signalbox.errors import (
    Conflict,
    Exhausted,
    Gone,
    HostNotAllowed,
    InvalidInput,
    NotAllowed,
    SignalboxError,
    TooSlow,
    Unauthenticated,
)
from signalbox.jobs.reports import REPORT_S
from signalbox.jobs.spec import JobSpec
from signalbox.membership import KEPT_ITERATIONS, MAX_PAUSE_S, UP_TO_OTHERS, Ended
from tests.support.membership import HOUR_S, LEASE_S, UNREACHABLE, FakeController, Training, spec

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
        f"job 'job': no contact with the controller (the training continues): {UNREACHABLE}"
    ]
    assert not training.ended
    assert controller.opened == controller.closed > 3, "a client that failed is not used again"


@pytest.mark.parametrize("lease_s", [3.0, 15.0, 60.0])
def test_a_controller_that_is_back_within_the_lease_hears_before_its_end(
    controller: FakeController, lease_s: float
) -> None:
    training = Training(controller, spec(lease_s=lease_s))
    training.round()
    controller.away = UNREACHABLE
    training.report(0)
    assert max(training.go_on(0.8 * lease_s - REPORT_S)) <= max(1.0, lease_s / 6)


def test_each_outage_has_its_line(
    controller: FakeController, training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        training.go_on(LEASE_S)
        controller.away = TooSlow("no answer from the controller at localhost: the answer did not arrive in time")
        training.go_on(LEASE_S / 2)
        controller.away = UNREACHABLE
        training.go_on(LEASE_S / 2)
        controller.away = None
    assert len(caplog.records) == 3


def test_the_latest_iterations_survive_a_long_outage(controller: FakeController, training: Training) -> None:
    training.round()
    controller.away = UNREACHABLE
    for index in range(KEPT_ITERATIONS + 500):
        training.report(index)
        if index % 100 == 0:
            training.round()
    controller.away = None
    training.go_on(MAX_PAUSE_S)
    assert controller.reported == list(range(500, KEPT_ITERATIONS + 500))
    assert len(controller.registrations) == 1
    assert training.contacts == [True, False, True]


@pytest.mark.parametrize("error", [
    Unauthenticated("who?"),
    NotAllowed("a reader may not"),
    HostNotAllowed("job 'job' names 10.0.3.1"),
    Conflict("another job has announced the pair"),
    Exhausted("too many jobs"),
    SignalboxError("INTERNAL: a fault"),
    OSError("no descriptor is left"),
    ZeroDivisionError("a fault of ours"),
], ids=lambda error: type(error).__name__)  # fmt: skip
def test_whatever_the_controller_says_the_job_is_announced_when_it_can_be(
    controller: FakeController, training: Training, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    controller.away = error
    training.go_on(HOUR_S)
    controller.away = None
    training.go_on(MAX_PAUSE_S)
    assert training.membership.registered
    assert (controller.opened == 1) is isinstance(error, UP_TO_OTHERS)
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
    ("gone", "ended", "hands_over"),
    [
        (Gone.JOB_TAKEN_OVER, Ended.TAKEN_OVER, False),
        (Gone.JOB_TAKEN_OVER, Ended.TAKEN_OVER, True),
        (Gone.JOB_DEREGISTERED, Ended.DEREGISTERED, False),
    ],
)
def test_a_job_that_was_taken_over_or_ended_by_an_operator_is_left_alone(
    controller: FakeController, gone: Gone, ended: Ended, hands_over: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A membership that leaves its job to a better announcement does not warn of it."""
    training = Training(controller, hands_over=hands_over)
    training.round()
    controller.forget(gone)
    training.go_on(HOUR_S)
    training.membership.leave()
    assert training.ended == [ended]
    assert len(controller.registrations) == 1
    assert len(caplog.records) == (0 if hands_over else 1)
    assert controller.opened == controller.closed == 1
    assert not training.membership.registered


@pytest.mark.parametrize("ran_out", [False, True])
def test_a_job_is_left_to_the_new_owner_of_its_id(controller: FakeController, ran_out: bool) -> None:
    """The lease has run out and the id is taken, or a new controller does not know the lease token."""
    training = Training(controller, take_over=True)
    training.round()
    if ran_out:
        controller.forget()
        training.report(0)
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
    assert [record.getMessage() for record in caplog.records] == [
        "job 'job': not announced yet (the training continues): the id belongs to another registration; the job is "
        "announced when that registration ends, or now with take_over (signalbox run --take-over)"
    ]
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


def test_an_answer_that_was_too_slow_is_not_the_controllers(controller: FakeController, training: Training) -> None:
    """The controller is starting or busy, so the client keeps waiting for its answer."""
    controller.away = TooSlow("no answer from the controller at localhost: the answer did not arrive in time")
    training.round()
    assert not training.membership.tried.is_set()
    controller.away = InvalidInput.of("endpoints", "must be at least 2")
    training.round()
    assert training.membership.tried.is_set()
    assert training.membership.first_error is controller.away
