"""Jobs that change, processes that succeed each other, and releases."""

import math

import pytest

from signalbox.errors import HostNotAllowed, NotAllowed
from signalbox.jobs.spec import JobSpec
from signalbox.membership import MAX_PAUSE_S, Ended, Membership
from tests.support.membership import HOUR_S, LEASE_S, UNREACHABLE, FakeController, Training, spec

# ---- changes, releases, and processes that succeed each other


OTHER_HOST = ["10.0.1.1", "10.0.3.1"]


def again(controller: FakeController, now: JobSpec, token: str) -> tuple[Membership, list[Ended]]:
    """Return the membership of a restarted process after its first round, and the list that records its end."""
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


@pytest.mark.parametrize("refusal", [HostNotAllowed("job 'job' names 10.0.3.1"), NotAllowed("a reader may not")])
def test_a_change_that_is_not_allowed_leaves_the_job_as_it_was_until_it_is(
    controller: FakeController, training: Training, caplog: pytest.LogCaptureFixture, refusal: NotAllowed
) -> None:
    """Reports and renewals continue on the same connection."""
    training.round()
    controller.refuses_updates = refusal
    training.membership.update(changed := spec(endpoints=OTHER_HOST))
    training.report(1)
    training.go_on(LEASE_S)
    assert (controller.reported, controller.opened, training.contacts) == ([1], 1, [True])
    assert "does not change" in caplog.records[0].getMessage()
    controller.refuses_updates = None
    training.go_on(LEASE_S)
    assert controller.updates == [changed]


def test_a_job_on_hosts_that_the_tenant_may_not_use_is_announced_when_they_are_granted(
    controller: FakeController, training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    controller.away = HostNotAllowed("job 'job' names 10.0.3.1")
    training.go_on(LEASE_S)
    assert "not announced yet" in caplog.records[0].getMessage()
    assert controller.opened == 1
    controller.away = None
    training.go_on(LEASE_S)
    assert training.membership.registered


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
