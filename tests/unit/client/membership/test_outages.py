"""Calls of a job whose controller does not answer, forgets the job, or gives it to another owner."""

import logging
from typing import Any

import pytest

from signalbox.errors import (
    Conflict,
    Exhausted,
    Gone,
    InvalidInput,
    NotAllowed,
    SignalboxError,
    TooSlow,
    Unauthenticated,
)
from signalbox.jobs.reports import REPORT_S
from signalbox.jobs.spec import JobSpec
from signalbox.membership import KEPT_ITERATIONS, MAX_PAUSE_S, Ended
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
        f"job 'job': not in touch with the controller, the training continues: {UNREACHABLE}"
    ]
    assert not training.ended


@pytest.mark.parametrize("lease_s", [3.0, 15.0, 60.0])
def test_a_controller_that_is_back_within_the_lease_hears_before_its_end(
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
        controller.away = TooSlow("no answer from the controller at localhost: the call took too long")
        training.go_on(LEASE_S / 2)
        controller.away = UNREACHABLE
        training.go_on(LEASE_S / 2)
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


@pytest.mark.parametrize("error", [
    Unauthenticated("who?"),
    NotAllowed("a reader may not"),
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


def test_an_outage_longer_than_the_lease_is_followed_by_a_new_registration(
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
    ("gone", "ended"), [(Gone.JOB_TAKEN_OVER, Ended.TAKEN_OVER), (Gone.JOB_DEREGISTERED, Ended.DEREGISTERED)]
)
def test_a_job_that_was_taken_over_or_ended_by_an_operator_is_left_alone(
    controller: FakeController, training: Training, gone: Gone, ended: Ended, caplog: pytest.LogCaptureFixture
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


def test_a_job_whose_lease_ran_out_is_left_to_the_new_owner_of_its_id(
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


def test_a_token_that_a_new_controller_does_not_know_is_given_up(
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
    assert [record.getMessage() for record in caplog.records] == [
        "job 'job': not announced yet, the training continues: the id belongs to another registration; the job is "
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
    controller.away = TooSlow("no answer from the controller at localhost: the call took too long")
    training.round()
    assert not training.membership.tried.is_set()
    controller.away = InvalidInput.of("endpoints", "must be at least 2")
    training.round()
    assert training.membership.tried.is_set()
    assert training.membership.first_error is controller.away
