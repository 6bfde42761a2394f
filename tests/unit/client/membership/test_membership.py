"""Calls of a job to its controller: registration, lease, iterations, connections and the end."""

import logging
import math
from typing import Any

import pytest

from signalbox.errors import Conflict, InvalidInput, SignalboxError
from signalbox.jobs.reports import REPORT_S, Connected
from signalbox.membership import MIN_PAUSE_S
from tests.support.membership import BACK, LEASE_S, THERE, UNREACHABLE, FakeController, Training, spec


def test_a_job_is_registered_once_and_its_lease_renewed(controller: FakeController, training: Training) -> None:
    training.go_on(10 * LEASE_S)
    assert [one["spec"] for one in controller.registrations] == [training.spec]
    assert 38 <= controller.renewals <= 41
    assert controller.opened == 1
    assert training.membership.registered


def test_a_short_lease_is_renewed_in_time(controller: FakeController, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.membership.LEASE_S", 1.0)
    training = Training(controller, spec(lease_s=1.0))
    assert max(training.go_on(20.0)) <= 0.25


def test_nothing_is_sent_while_there_is_nothing_to_say(controller: FakeController, training: Training) -> None:
    training.round()
    calls = controller.calls
    training.go_on(LEASE_S / 4 - REPORT_S)
    assert controller.calls == calls


@pytest.mark.parametrize("left_s", [math.nan, math.inf, 8e10, -1.0, 0.0, 1e-9])
def test_answers_that_cannot_be_put_no_renewal_off_and_do_not_make_it_a_loop(
    left_s: float, controller: FakeController, training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew = controller.renew_lease

    def renewed(*job: str) -> float:
        renew(*job)
        return left_s

    monkeypatch.setattr(controller, "renew_lease", renewed)
    training.membership._report_s = math.inf
    pauses = training.go_on(10 * LEASE_S)
    assert 38 <= controller.renewals <= 401
    assert all(MIN_PAUSE_S <= pause_s <= LEASE_S / 4 for pause_s in pauses)


CHANGED = spec(transfers=[{"src": 0, "dst": 1, "bytes_per_iteration": 1000}])


def test_a_job_is_announced_as_it_was_first_and_updated_once(controller: FakeController, training: Training) -> None:
    """The answer to the first registration may have been lost, so the same request has to be repeated."""
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
    assert caplog.messages == [f"the announcement of job 'job' does not change, the training continues: {why}"]
    controller.forget()
    training.go_on(LEASE_S)
    assert [one["spec"] for one in controller.registrations] == [training.spec] * 2
    controller.refuses_updates = None
    training.membership.update(CHANGED.model_copy())
    training.go_on(LEASE_S)
    assert controller.updates == [CHANGED], "an update of the user is tried anew"


@pytest.mark.parametrize("final", [True, False])
def test_an_update_that_other_jobs_are_in_the_way_of_is_tried_again_with_each_renewal(
    final: bool, controller: FakeController, training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    training.round()
    controller.refuses_updates = InvalidInput.of("transfers", "is wrong") if final else Conflict("of another job", {})
    training.membership.update(CHANGED)
    training.go_on(3 * LEASE_S)
    assert caplog.text.count("does not change") == 1
    assert (training.membership.change is None) == (controller.spec == CHANGED)
    controller.refuses_updates = None
    training.go_on(LEASE_S)
    assert controller.updates == ([] if final else [CHANGED])


def test_an_update_that_becomes_possible_meanwhile_is_tried_again(
    controller: FakeController, training: Training
) -> None:
    """The change arrives from another thread before the refusal."""
    training.round()
    update_job = controller.update_job

    def refused(spec: Any, *, lease_token: str) -> None:
        controller.update_job = update_job  # type: ignore[method-assign]
        training.membership.try_again()
        raise Conflict(f"{spec.job_id}: of another job", {"token": lease_token})

    controller.update_job = refused  # type: ignore[method-assign]
    training.membership.update(CHANGED)
    training.round()
    assert not controller.updates
    training.round()
    assert controller.updates == [CHANGED]


def test_what_others_have_announced_for_the_job_is_set_right(controller: FakeController, training: Training) -> None:
    """Another process may announce an older spec of the job after the job has announced a newer one."""
    training.round()
    training.membership.update(CHANGED)
    training.round()
    controller.spec = training.spec
    training.membership.try_again()
    training.round()
    assert controller.spec == CHANGED
    training.go_on(LEASE_S)
    assert controller.updates == [CHANGED, CHANGED]


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
        "job 'job': iterations are left out, the training continues: iterations[0].duration: must be more than 0"
    ]
    assert training.membership.registered


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


def test_after_training_the_job_is_gone_and_all_is_reported(controller: FakeController, training: Training) -> None:
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
