"""``signalbox.join`` against the real API server and the real controller process."""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import signalbox
from controller.planning.problem import FlowId
from mininet_topos.controller_process import ControllerProcess
from signalbox.client import Client
from signalbox.credentials import Credentials
from signalbox.errors import InvalidInput
from signalbox.jobs.reports import Accepted
from signalbox.jobs.spec import JobSpec
from signalbox.jobs.subflows import PortClass
from signalbox.membership import Ended
from signalbox.remote_client import RemoteClient
from signalbox.route_following import Route, Subflow
from tests.support.waiting import DEADLINE_S, until
from tests.support.wire.certificates import Authority
from tests.support.wire.control_stand_in import H1, H2, VIA_SPINE, Running, running_api

ENDPOINTS = [H1, H2]
TRANSFERS = [{"src": 0, "dst": 1, "bytes_per_iteration": 1000}]


@pytest.fixture
def joined(api: Running) -> Iterator[signalbox.Job]:
    with signalbox.join("job", endpoints=ENDPOINTS, transfers=TRANSFERS, address=api.addresses[0]) as job:
        until(lambda: job.registered)
        yield job


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "signalbox"]


def jobs(api: Running) -> list[str]:
    return list(api.control.registry.jobs)


def test_a_job_is_announced_reports_and_is_released(api: Running, client: Client, joined: signalbox.Job) -> None:
    for _ in range(3):
        with joined.step() as step, step.communication():
            pass
    until(lambda: client.get_job("job").iterations == 3)
    assert client.get_job("job").last_iteration_index == 2
    joined.iteration(2.0, 1.0)
    joined.leave()
    assert jobs(api) == []
    assert joined.ended is Ended.LEFT
    joined.leave()


def test_routes_and_shares_are_followed_by_every_rank_from_the_first_look(api: Running, joined: signalbox.Job) -> None:
    told: list[tuple[Route, ...]] = []
    with signalbox.join("job", rank=1, address=api.addresses[0], on_routes=told.append) as other:
        until(lambda: bool(joined.routes) and bool(other.routes))
        assert not joined.routes[0].pinned
        api.control.set_route(FlowId(H1, H2), VIA_SPINE)
        until(lambda: joined.routes[0].pinned and other.routes[0].pinned)
        path = ("leaf1", "spine1", "leaf2")
        assert joined.routes == other.routes == (Route(H1, H2, True, path, (Subflow(1.0, path, PortClass(0, 0)),)),)
        assert joined.shares == {}
        assert told[-1] == other.routes
        joined.leave()
        until(lambda: other.ended is Ended.DEREGISTERED)
    assert other.routes[0].pinned, "what was known stays"


def test_a_take_over_is_known_at_once_while_routes_are_followed(api: Running, joined: signalbox.Job) -> None:
    until(lambda: bool(joined.routes))
    with Client(api.addresses[0]) as other:
        other.register_job(JobSpec.parse({"job_id": "job", "endpoints": ENDPOINTS}), take_over=True)
        until(lambda: joined.ended is Ended.TAKEN_OVER)


TWICE = {
    "job_id": "job",
    "endpoints": ENDPOINTS,
    "groups": [{"name": "all", "ranks": [0, 1]}],
    "collectives": [{"algorithm": "ring_all_reduce", "groups": ["all", "all"], "bytes_per_iteration": 1000}],
}
"""Spec with an error that only the controller checks."""


def test_a_spec_that_the_controller_refuses_is_told_by_fields(api: Running, caplog: pytest.LogCaptureFixture) -> None:
    with signalbox.join(TWICE, address=api.addresses[0]) as job:
        until(lambda: job.ended is Ended.REFUSED)
    (told,) = (line for line in lines(caplog) if "no contact" not in line)  # a busy machine may be too slow at first
    assert "collectives[0].groups: " in told
    with pytest.raises(InvalidInput) as error:
        signalbox.join(TWICE, address=api.addresses[0], strict=True)
    assert [problem.path for problem in error.value.problems] == ["collectives[0].groups"]


def test_a_controller_that_accepts_and_says_nothing_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(DEADLINE_S)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with signalbox.join("job", endpoints=ENDPOINTS, address=address) as job:
            accepted, _ = silent.accept()
            for _ in range(100):
                with job.step():
                    pass
            assert job.routes == ()
        accepted.close()
    assert job.ended is Ended.LEFT
    assert not lines(caplog), "the end of the program is no outage"


def test_tls_that_fails_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    server = ours.sign("controller", also="IP:127.0.0.1")
    with running_api(certificate=server.certificate, private_key=server.private_key) as api:
        address = api.addresses[0]
        for wrong in (Credentials(), Credentials(tls_ca=other.certificate)):
            with signalbox.join("job", endpoints=ENDPOINTS, address=address, credentials=wrong) as job:
                until(lambda: bool(lines(caplog)))
                assert not job.registered
            assert len(lines(caplog)) == 1, wrong
            caplog.clear()
        trusted = Credentials(tls_ca=ours.certificate)
        with signalbox.join("job", endpoints=ENDPOINTS, address=address, credentials=trusted, strict=True):
            assert jobs(api) == ["job"]
        assert jobs(api) == []


def test_a_job_waits_for_a_paused_controller_and_goes_on_with_a_killed_one_that_starts_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller receives the iterations of the outage, and has the same registration."""
    controller = ControllerProcess(tmp_path)
    with ExitStack() as stack:
        client = stack.enter_context(controller.running())
        announced: dict[str, Any] = {"endpoints": ENDPOINTS, "lease_s": 30, "keeps_slots": False}
        job = stack.enter_context(signalbox.join("job", address=controller.address, **announced))
        until(lambda: job.registered)
        report_while_paused(controller, job, 10, monkeypatch)
        until(lambda: client.get_job("job").iterations == 10)
        assert job.ended is None
        uid, outages = client.get_job("job").uid, len(lines(caplog))
        controller.kill()
        job.iteration(1.0)
        until(lambda: len(lines(caplog)) == outages + 1)
        client = stack.enter_context(controller.running())
        until(lambda: client.get_job("job").iterations > 0)
        assert client.get_job("job").uid == uid
        assert client.get_job("job").last_iteration_index == 10
        assert len(lines(caplog)) == outages + 1, "one outage"
        job.leave()
        assert client.list_jobs() == ()


def report_while_paused(
    controller: ControllerProcess, job: signalbox.Job, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Report ``times`` iterations while the controller is stopped, and continue it when a report is being sent."""
    reporting, report = threading.Event(), RemoteClient.report_iterations

    def reports(*given: Any) -> Accepted:
        reporting.set()
        return report(*given)

    monkeypatch.setattr(RemoteClient, "report_iterations", reports)
    assert controller.process
    controller.process.send_signal(signal.SIGSTOP)
    for _ in range(times):
        job.iteration(1.0)
    assert reporting.wait(DEADLINE_S)
    controller.process.send_signal(signal.SIGCONT)
