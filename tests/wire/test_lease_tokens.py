"""Permission to change a job, over gRPC: by the token of its registration, or by an explicit override.

A traceback that a defect logs contains no token of the call in any log format."""

import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.api import guard
from controller.api.lease_tokens import LeaseTokens
from controller.jobs.messages import RegisterJob
from controller.jobs.registry import Known
from controller.log_limit import LimitedLog
from controller.observability import logs
from signalbox.client import Client
from signalbox.credentials import Credentials
from signalbox.errors import Gone, InvalidInput, NotFound, SignalboxError
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobSpec
from tests.support.waiting import DEADLINE_S, beside, until
from tests.support.wire.control_stand_in import H1, H2, Running, running_api
from tests.support.wire.secured import secret_file


def spec(lease_s: float = 30.0, **more: object) -> JobSpec:
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1000}]
    return JobSpec.parse({"job_id": "job", "endpoints": [H1, H2], "transfers": transfers, "lease_s": lease_s, **more})


Call = Callable[[Client, str | None], object]
CALLS: dict[str, Call] = {
    "renew": lambda client, token: client.renew_lease("job", token),
    "report": lambda client, token: client.report_iterations("job", [IterationTime(0, 2.0, 1.0)], token),
    "report connections": lambda client, token: client.report_connections("job", H1, [], token),
    "update": lambda client, token: client.update_job(spec(max_subflows=2, reports_connections=True), (), token),
    "deregister": lambda client, token: client.deregister_job("job", token),
}


@pytest.fixture
def stranger(api: Running) -> Iterator[Client]:
    with Client(api.addresses[0]) as client:
        yield client


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("name", ["register", "update"])
def test_who_is_overtaken_learns_it_once_that_is_certain(api: Running, client: Client, name: str, saved: bool) -> None:
    """The call has succeeded, and another registration takes the job over before the answer is sent.

    The take-over is on disk a moment later, or cannot be saved."""
    registry = api.control.registry
    registered = client.register_job(spec(), request_id="first")
    carry_out = getattr(registry, name)

    def overtaken(*args: Any) -> Any:
        setattr(registry, name, carry_out)
        carried_out = carry_out(*args)
        (job,) = carried_out if name == "update" else (carried_out,)
        before.append(registry.known(job.id))
        registry.register(RegisterJob(spec(), take_over=True), time.monotonic())
        return carried_out

    before: list[Known] = []
    setattr(registry, name, overtaken)
    calls: dict[str, Callable[[], str]] = {
        "register": lambda: client.register_job(spec(), request_id="second", lease_token="", take_over=True).job.uid,
        "update": lambda: client.update_job(spec(lease_s=20.0)).uid,
    }
    call = beside(calls[name])
    until(lambda: before or call.done())
    ((job, reports),) = before
    client.get_status()  # answered after everything that was ready before
    assert not call.done(), "answered before it is certain"
    assert job
    end = registry.ends.of(job.id, job.uid)
    assert end
    if saved:
        api.control.put(lambda: registry.ends.confirm(end))
        with pytest.raises(NotFound, match="was taken over by another registration") as error:
            call.result(DEADLINE_S)
        assert error.value.reason is Gone.JOB_TAKEN_OVER
    else:
        api.control.put(lambda: registry.restore({job.id: Known(job, reports)}))
        assert call.result(DEADLINE_S) == job.uid
        assert (job.uid == registered.job.uid) == (name == "update")


def test_force_ends_the_registration_that_is_meant_or_none(client: Client, stranger: Client) -> None:
    first = client.register_job(spec()).job.uid
    for _ in range(2):
        stranger.deregister_job("job", force=True, uid=first)
    second = client.register_job(spec()).job.uid
    stranger.deregister_job("job", force=True, uid=first)  # repeated late, when it must have no effect
    assert client.get_job("job").uid == second
    client.register_job(spec(max_subflows=2), take_over=True)
    with pytest.raises(NotFound, match="taken over"):
        stranger.deregister_job("job", force=True, uid=second)
    assert client.renew_lease("job") == 30.0


def test_tokens_are_in_no_error_and_not_printed(client: Client, stranger: Client) -> None:
    registered = client.register_job(spec())
    assert registered.lease_token not in repr(registered)
    stranger.register_job(spec(), take_over=True)
    errors = []
    for call in CALLS.values():
        with pytest.raises(SignalboxError) as error:
            call(client, None)
        errors.append(repr(error.value))
    assert not any(registered.lease_token.partition(".")[2] in error for error in errors)


def test_a_request_id_has_a_limit(client: Client) -> None:
    with pytest.raises(InvalidInput, match=r"request_id: at most 128 characters are allowed \(given: 129\)"):
        client.register_job(spec(), request_id="x" * 129)


def test_the_client_gives_each_registration_a_request_id_of_its_own(client: Client) -> None:
    first = client.register_job(spec())
    client.deregister_job("job")
    second = client.register_job(spec())
    taken_over = client.register_job(spec(max_subflows=2), take_over=True)
    assert len({each.job.uid for each in (first, second, taken_over)}) == 3


LEASE_TOKEN, TOKEN = "uid.lease-token-of-somebody", "sbx_token-of-somebody"


class Stderr(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize(("json", "terminal"), [(True, False), (False, False), (False, True)])
def test_a_traceback_has_no_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, json: bool, terminal: bool) -> None:
    stderr = Stderr(terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(guard, "log", LimitedLog(guard.log._log))  # the line of the case before is not a repetition
    logs.configure(json=json, level="debug")

    def defect(_: LeaseTokens, token: str) -> str | None:
        raise LookupError(f"of {len(token)} characters")

    monkeypatch.setattr(LeaseTokens, "uid", defect)
    file = secret_file(tmp_path / "token", TOKEN)
    with (
        running_api() as api,
        Client(api.addresses[0], credentials=Credentials(token_file=file)) as client,
        pytest.raises(SignalboxError, match="INTERNAL: internal error"),
    ):
        client.renew_lease("job", LEASE_TOKEN)
    written = stderr.getvalue()
    assert "Traceback" in written
    assert f"of {len(LEASE_TOKEN)} characters" in written
    assert LEASE_TOKEN not in written
    assert TOKEN not in written
