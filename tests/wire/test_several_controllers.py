"""Clients of several controllers: they find the active one, and change to another one when it fails."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

import signalbox
from controller.api.errors import Stopping
from controller.api.errors import status_of as refusal
from mininet_topos.controller_process import ControllerProcess, reserve_port
from signalbox import active_channel
from signalbox.client import Client, Unreachable, resuming
from signalbox.errors import SignalboxError, Unavailable
from signalbox.live.following import Following
from signalbox.mapping import duration
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from signalbox.words import MAY_BE_REPLACED
from tests.support.waiting import DEADLINE_S, beside, until
from tests.support.wire.api_calls import ring
from tests.support.wire.control_stand_in import running_api
from tests.support.wire.etcd import running_etcd
from tests.support.wire.secured import Secured, status_of


class Simple(pb_grpc.JobServiceServicer, health_pb2_grpc.HealthServicer):
    """A controller whose answers have its number.

    - ``silent``: whether it answers neither calls nor probes
    - ``slow_s``: seconds that a call takes
    - ``error``: status of its calls
    - ``may_be_replaced``: whether its answers say so"""

    def __init__(self, number: int, port: int = 0) -> None:
        self.number = number
        self.silent = False
        self.slow_s = 0.0
        self.error: SignalboxError | None = None
        self.may_be_replaced = False
        self.calls = 0
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(16)
        self._server = grpc.server(self._pool)
        pb_grpc.add_JobServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port(f'127.0.0.1:{port}')}"
        self._server.start()

    def stop(self) -> None:
        self._over.set()
        self._server.stop(None).wait()
        self._pool.shutdown()

    def Check(self, *_: Any) -> health_pb2.HealthCheckResponse:  # noqa: N802
        if self.silent:
            self._over.wait()
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

    def RenewLease(self, _: Any, context: Any) -> pb.RenewLeaseResponse:  # noqa: N802
        self.calls += 1
        self._over.wait(None if self.silent else self.slow_s)
        if self.may_be_replaced:
            context.set_trailing_metadata(((MAY_BE_REPLACED, "1"),))
        if self.error:
            context.abort_with_status(rpc_status.to_status(refusal(self.error)))
        return pb.RenewLeaseResponse(lease_left=duration(self.number))

    def WatchJobs(self, _: Any, context: Any) -> Iterator[pb.WatchJobsResponse]:  # noqa: N802
        left = threading.Event()
        goes_on = context.add_callback(left.set)
        yield pb.WatchJobsResponse(snapshot=True, resume_token=str(self.number))
        if goes_on:
            left.wait()


@contextmanager
def simple(number: int, port: int = 0) -> Iterator[Simple]:
    controller = Simple(number, port)
    try:
        yield controller
    finally:
        controller.stop()


@contextmanager
def listening_only() -> Iterator[str]:
    """Yield an address where connections are accepted, and nothing else happens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def answered_by(client: Client) -> float:
    return client.renew_lease("job", "token")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time after which a client regards a controller as silent."""
    monkeypatch.setattr(active_channel, "SILENT_S", 0.05)
    monkeypatch.setattr(active_channel, "PROBE_S", 1.0)


def test_the_active_controller_is_found_wherever_it_is_in_the_list() -> None:
    with listening_only() as silent, simple(1) as active:
        refusing = f"127.0.0.1:{reserve_port()}"
        for places in ((active.address, refusing, silent), (refusing, silent, active.address)):
            with Client(",".join(places)) as client:
                assert answered_by(client) == 1


def test_calls_and_streams_go_on_at_the_next_controller() -> None:
    port = reserve_port()
    with ExitStack() as ends, simple(1) as first, Client(f"{first.address},127.0.0.1:{port}", DEADLINE_S) as client:
        lost: list[SignalboxError] = []
        watch = resuming(client.watch_jobs, lost.append)
        assert (answered_by(client), next(watch).resume_token) == (1, "1")
        first.stop()
        second = ends.enter_context(simple(2, port))
        assert (answered_by(client), next(watch).resume_token) == (2, "2")
        assert (len(lost), second.calls) == (1, 1)
        watch.close()


def test_a_controller_that_takes_no_call_is_passed_over_though_it_answers_probes() -> None:
    with simple(1) as stopping, simple(2) as second:
        stopping.error = Stopping("the controller is stopping")
        with Client(f"{stopping.address},{second.address}", DEADLINE_S) as client:
            client._channel._left = second.address  # is probed later than the first
            assert answered_by(client) == 2


@pytest.mark.usefixtures("impatient")
def test_a_silent_controller_is_left_with_its_streams() -> None:
    port = reserve_port()
    with simple(1) as first, Client(f"{first.address},127.0.0.1:{port}", DEADLINE_S) as client:
        watch = resuming(client.watch_jobs)
        assert (answered_by(client), next(watch).resume_token) == (1, "1")
        first.silent = True
        with simple(2, port):
            assert (answered_by(client), next(watch).resume_token) == (2, "2")
            watch.close()


@pytest.mark.usefixtures("impatient")
def test_a_stream_alone_leaves_a_silent_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_channel, "STREAM_PROBE_S", 0.05)
    port = reserve_port()
    with simple(1) as first, Client(f"{first.address},127.0.0.1:{port}", DEADLINE_S) as client:
        watch = resuming(client.watch_jobs)
        assert next(watch).resume_token == "1"
        first.silent = True
        with simple(2, port):
            assert next(watch).resume_token == "2"
            watch.close()


@pytest.mark.usefixtures("impatient")
def test_a_slow_answer_is_waited_for_and_the_call_is_not_repeated() -> None:
    with simple(1) as slow, Client(f"{slow.address},127.0.0.1:{reserve_port()}", DEADLINE_S) as client:
        slow.slow_s = 0.5
        assert answered_by(client) == 1
        assert slow.calls == 1


def test_a_change_that_was_not_saved_is_made_by_the_controller_that_has_replaced_this_one() -> None:
    """A controller that is cut off from etcd does not know that it was replaced."""
    port = reserve_port()
    with simple(1) as first, Client(f"{first.address},127.0.0.1:{port}", DEADLINE_S) as client:
        assert answered_by(client) == 1
        first.error = Unavailable("the state cannot be saved", 1.0)
        with simple(2, port) as second:
            assert answered_by(client) == 2
            second.error = Unavailable("the state of the second cannot be saved", 1.0)
            with pytest.raises(Unavailable, match="cannot be saved"):
                answered_by(client)
        assert (first.calls, second.calls) == (3, 2), "each was called once by the last call"


def test_a_lease_is_renewed_at_the_controller_that_has_replaced_this_one() -> None:
    """A controller that is cut off from etcd renews leases, but the active controller does not learn of it."""
    port = reserve_port()
    with simple(1) as first, Client(f"{first.address},127.0.0.1:{port}", DEADLINE_S) as client:
        first.may_be_replaced = True
        assert answered_by(client) == 1
        with simple(2, port) as second:
            assert answered_by(client) == answered_by(client) == 2
            second.may_be_replaced = True
            assert answered_by(client) == 1
        assert (first.calls, second.calls) == (3, 3)


def test_a_change_that_was_not_saved_is_an_error_when_no_other_controller_answers() -> None:
    with simple(1) as only, Client(f"{only.address},127.0.0.1:{reserve_port()}", DEADLINE_S) as client:
        only.error = Unavailable("the state cannot be saved", 1.0)
        with pytest.raises(Unavailable, match="the state cannot be saved"):
            answered_by(client)
        assert only.calls == 1


def test_a_call_that_may_last_long_is_not_repeated_for_as_long() -> None:
    """Setting the mode may take minutes. While no controller may change anything, the caller gets an error soon."""
    with simple(1) as only, Client(f"{only.address},127.0.0.1:{reserve_port()}", 0.5) as client:
        only.error = Stopping("the controller is stopping")
        with pytest.raises(SignalboxError):
            client._call(client._jobs.RenewLease, pb.RenewLeaseRequest(), 10_000.0)
        assert only.calls > 0


def test_without_a_controller_the_error_has_the_reason_at_each_address() -> None:
    refusing = f"127.0.0.1:{reserve_port()}"
    with listening_only() as silent, Client(f"{refusing},{silent}", 0.5) as client, pytest.raises(Unreachable) as error:
        answered_by(client)
    assert str(error.value) == (
        f"no active controller at any of the 2 addresses: {refusing}: no process listens there; is the controller "
        f"running?; {silent}: there is no answer"
    )


def test_the_error_has_the_reason_with_which_a_controller_refuses_calls() -> None:
    """A leader that is cut off from etcd answers probes, but no calls about jobs."""
    with simple(1) as first, Client(f"{first.address},127.0.0.1:{reserve_port()}", 0.5) as client:
        first.error = Stopping("the controller may have been replaced")
        with pytest.raises(Unreachable, match=f"{first.address}: the controller may have been replaced"):
            answered_by(client)


def test_closing_the_client_ends_the_search() -> None:
    client = Client(f"127.0.0.1:{reserve_port()},127.0.0.1:{reserve_port()}", DEADLINE_S)
    answer = beside(answered_by, client)
    until(lambda: client._channel._finding.locked())
    client.close()
    with pytest.raises(Unreachable):
        answer.result(DEADLINE_S)


def test_what_top_and_web_show_is_that_of_the_next_controller() -> None:
    port = reserve_port()
    with ExitStack() as ends:
        first = ends.enter_context(running_api())
        following = ends.enter_context(Following(lambda: Client(f"{first.addresses[0]},127.0.0.1:{port}")))
        until(lambda: following.changes() and following.state.switches)
        first.server.stop(grace_s=0.0)
        second = ends.enter_context(running_api(f"127.0.0.1:{port}"))
        with Client(second.addresses[0]) as client:
            client.register_job(ring("later"))
        until(lambda: following.changes() and "later" in following.state.jobs)
        assert following.state.lost == ""


def test_each_certificate_is_verified_for_the_host_in_its_own_address(secured: Secured) -> None:
    by_number, by_name = (
        secured.ours.sign("some", also=also, file=also[:2]) for also in ("IP:127.0.0.1", "DNS:localhost")
    )
    with ExitStack() as ends:
        of_number, of_name = (
            ends.enter_context(running_api(certificate=made.certificate, private_key=made.private_key))
            .addresses[0]
            .rpartition(":")[2]
            for made in (by_number, by_name)
        )
        refusing = f"127.0.0.1:{reserve_port()}"
        for right in (f"127.0.0.1:{of_number},localhost:{of_number}", f"{refusing},localhost:{of_name}"):
            assert status_of(right, secured.credentials())
        with Client(f"localhost:{of_number},127.0.0.1:{of_name}", 1.0, secured.credentials()) as client:
            with pytest.raises(Unreachable) as error:
                client.get_status()
            # When a name has several addresses, gRPC names only the last one.
            assert f"127.0.0.1:{of_name}: the controller's certificate does not name this address" in str(error.value)


@contextmanager
def active_and_standby(folder: Path, store: str) -> Iterator[tuple[ControllerProcess, ControllerProcess, str]]:
    """Yield two controllers and the addresses of both for clients. ``store``: sqlite or etcd."""
    with ExitStack() as ends:
        at = f"etcd://{ends.enter_context(running_etcd(folder / 'etcd')).endpoint}" if store == "etcd" else store
        ports = [reserve_port(), reserve_port()]
        both = []
        for name, port in zip(("first", "second"), ports, strict=True):
            (folder / name).mkdir()
            listen = [f"unix:{folder / name / 'api.sock'}", f"127.0.0.1:{port}"]
            settings: dict[str, dict[str, object]] = {"api": {"listen": listen}}
            if store == "etcd":
                settings["members"] = {"api": f"unix:{folder / name / 'members.sock'}"}
            both.append(ControllerProcess(folder / name, settings=settings, store=at))
        if store == "sqlite":
            (folder / "first" / "state").mkdir(0o700)
            (folder / "second" / "state").symlink_to(folder / "first" / "state")
        first, second = both
        ends.callback(second.kill)
        ends.callback(first.kill)
        first.start("--standby")
        until(lambda: "event=ready" in first.log.read_text(), "the active controller")
        second.start("--standby")
        until(lambda: "standing by" in second.log.read_text(), "the standby")
        yield first, second, ",".join(f"127.0.0.1:{port}" for port in ports)


@pytest.mark.long
@pytest.mark.parametrize("store", ["sqlite", "etcd"])
def test_clients_go_on_at_the_standby_when_the_active_controller_is_killed(store: str, tmp_path: Path) -> None:
    with active_and_standby(tmp_path, store) as (first, second, addresses), Client(addresses, DEADLINE_S) as client:
        token = client.register_job(ring("kept")).lease_token
        seen: list[set[str]] = []

        def watch() -> None:
            with Client(addresses, DEADLINE_S) as other:
                snapshots = (message for message in resuming(other.watch_jobs) if message.snapshot)
                seen.extend({job.spec.job_id for job in message.jobs} for message in islice(snapshots, 2))

        watched = beside(watch)
        until(lambda: len(seen) == 1 or watched.done())
        with signalbox.join("joined", endpoints=["10.3.0.1", "10.3.0.2"], lease_s=30.0, address=addresses) as joined:
            until(lambda: joined.registered)
            first.kill()
            assert client.update_job(ring("kept", size=2000), lease_token=token).revision == 2
            assert client.renew_lease("kept", token) > 0
            watched.result(DEADLINE_S)
            assert seen[1] == {"kept", "joined"}
            joined.iteration(0.5)
            with Client(second.address) as standby:
                until(lambda: standby.get_job("joined").iterations)
            assert joined.registered
