"""Calls of a job to its controller: registration, lease, reports, the end, and the process that follows."""

import logging
import math
from typing import Any

import pytest

from signalbox.errors import Conflict, HostNotAllowed, InvalidInput, NotAllowed, SignalboxError
from signalbox.jobs.reports import REPORT_S, Connected
from signalbox.membership import MAX_PAUSE_S, MIN_PAUSE_S, Ended, Membership
from tests.support.membership import BACK, HOUR_S, LEASE_S, THERE, UNREACHABLE, FakeController, Training, spec


def test_a_job_is_registered_once_and_its_lease_renewed(controller: FakeController, training: Training) -> None:
    training.round()
    calls = controller.calls
    training.go_on(LEASE_S / 4 - REPORT_S)
    assert controller.calls == calls, "nothing is sent while there is nothing to say"
    training.go_on(10 * LEASE_S)
    assert [one["spec"] for one in controller.registrations] == [training.spec]
    assert 38 <= controller.renewals <= 41
    assert controller.opened == 1
    assert training.membership.registered


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


@pytest.mark.parametrize("refusal", [
    InvalidInput.of("transfers", "is wrong"),
    Conflict("a pair is of another job", {}),
    HostNotAllowed("job 'job' names 10.0.3.1"),
    NotAllowed("a reader may not"),
], ids=lambda error: type(error).__name__)  # fmt: skip
def test_a_refused_update_leaves_the_job_as_it_was_and_is_repeated_unless_it_is_wrong(
    refusal: Exception, controller: FakeController, training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    """Reports and renewals continue on the same connection. An update that is wrong is tried when the user repeats it.

    After the lease has run out, a refused spec is not announced anew."""
    wrong = isinstance(refusal, InvalidInput)
    training.round()
    controller.refuses_updates = refusal
    training.membership.update(CHANGED)
    training.report(0)
    training.go_on(3 * LEASE_S)
    assert (controller.reported, controller.opened, training.contacts) == ([0], 1, [True])
    assert caplog.messages == [f"the announcement of job 'job' cannot be changed (the training continues): {refusal}"]
    assert training.membership.change is not None
    controller.forget()
    training.go_on(LEASE_S)
    assert [one["spec"] for one in controller.registrations] == [training.spec] * 2
    controller.refuses_updates = None
    training.go_on(LEASE_S)
    assert controller.updates == ([] if wrong else [CHANGED])
    training.membership.update(CHANGED.model_copy())
    training.go_on(LEASE_S)
    assert controller.spec == CHANGED


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
    training.report(51, 50, 53, 52)  # by several threads at the same time
    training.round()
    assert controller.reported == list(range(54))


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
        "job 'job': iterations are not reported (the training continues): iterations[0].duration: must be more than 0"
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
    silent = Training(other := FakeController(), connections=lambda: frozenset({THERE}))
    silent.go_on(LEASE_S)
    assert not other.told, "a job whose spec does not say that it reports connections keeps them"


# ---- the end


@pytest.mark.parametrize(("away", "refuses"), [(None, False), (None, True), (UNREACHABLE, False)])
def test_after_training_all_is_reported_and_the_job_gone_as_far_as_the_controller_is_there(
    controller: FakeController,
    training: Training,
    away: Exception | None,
    refuses: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    training.round()
    training.report(0)
    controller.away, controller.refuses_iterations = away, refuses
    caplog.set_level(logging.ERROR)
    training.membership.leave()
    assert bool(controller.held) is (away is not None)
    assert controller.reported == ([] if away or refuses else [0])
    assert controller.opened == controller.closed
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


@pytest.mark.parametrize("changed", [False, True])
def test_a_process_that_has_the_token_of_the_one_before_continues_its_registration(
    controller: FakeController, training: Training, changed: bool
) -> None:
    training.round()
    now = spec(endpoints=["10.0.1.1", "10.0.3.1"]) if changed else training.spec
    ended: list[Ended] = []
    membership = Membership(controller.connect, now, ended.append, token=controller.held)
    membership.round(5000.0)
    assert (membership.registered, ended) == (True, [])
    assert (controller.updates, len(controller.registrations)) == ([now] * changed, 1)


def test_tokens_are_told(controller: FakeController) -> None:
    told: list[str] = []
    membership = Membership(controller.connect, spec(), lambda _: None, on_token=told.append)
    membership.round(0.0)
    controller.forget()
    membership.round(LEASE_S)
    membership.round(LEASE_S + 1)
    assert told == ["token 1", "token 2"]


@pytest.mark.parametrize("is_back", [True, False])
def test_a_release_is_tried_until_the_controller_is_back_or_the_lease_has_run_out(
    controller: FakeController, training: Training, is_back: bool
) -> None:
    training.round()
    controller.away = UNREACHABLE
    training.membership.release()
    training.go_on(LEASE_S / 2)
    assert not training.over
    controller.away = None if is_back else UNREACHABLE
    assert sum(training.go_on(HOUR_S)) <= LEASE_S / 2 + MAX_PAUSE_S
    assert (training.over, controller.ended) == (True, is_back)


@pytest.mark.parametrize("held", ["", "another's"])
def test_what_is_gone_is_released(controller: FakeController, training: Training, held: str) -> None:
    training.round()
    controller.held = held
    training.membership.release()
    assert training.round() is None
    assert (controller.held, controller.ended) == (held, 0)
    unregistered = Training(other := FakeController())
    unregistered.membership.release()
    assert (unregistered.round(), other.calls) == (None, 0)


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
