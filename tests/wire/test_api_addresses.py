"""Addresses where the API listens, and the standard services beside it."""

from __future__ import annotations

import re
import socket
import stat
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from controller.api.lease_tokens import LeaseTokens
from controller.api.server import ApiServer
from controller.config import ApiConfig
from controller.status import StatusBoard
from signalbox.client import Client, Unreachable
from tests.support.waiting import DEADLINE_S, beside
from tests.support.wire.api_calls import ring
from tests.support.wire.control_stand_in import Running, running_api

TOKENS = LeaseTokens()


# ---- standard services


def test_health_is_serving_then_not_serving_while_stopping(api: Running, channel: grpc.Channel) -> None:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    for name in ("", "signalbox.v1.JobService", "signalbox.v1.ControllerService"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=60)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=""))
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    stopped = beside(api.server.stop, 5.0)
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert list(watch) == []
    watch.cancel()
    stopped.result(DEADLINE_S)


def test_reflection_lists_and_describes_the_services(channel: grpc.Channel) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="signalbox.v1.JobService"),
    ]
    listed, described = stub.ServerReflectionInfo(iter(requests), timeout=60)
    names = {service.name for service in listed.list_services_response.service}
    assert {"signalbox.v1.JobService", "signalbox.v1.ControllerService", "grpc.health.v1.Health"} <= names
    assert described.file_descriptor_response.file_descriptor_proto


# ---- addresses


def refused(address: str, problem: str) -> None:
    """Start a server at the address, which is an error."""
    server = ApiServer(ApiConfig(listen=(address,)), StatusBoard(), lambda _: None, TOKENS)
    with pytest.raises(OSError, match=problem):
        server.start()
    server.stop()


def test_both_a_port_and_a_unix_socket_serve(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with running_api("127.0.0.1:0", f"unix:{path}") as api:
        assert api.addresses[1] == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with Client(api.addresses[0]) as tcp, Client(api.addresses[1]) as unix:
            tcp.register_job(ring())
            assert unix.get_job("ring").spec.job_id == "ring"
    assert not path.exists()


def test_the_directory_of_a_socket_is_made_or_an_error(tmp_path: Path) -> None:
    with running_api(f"unix:{tmp_path}/run/signalbox/api.sock") as api, Client(api.addresses[0]) as client:
        assert client.list_jobs() == ()
    (tmp_path / "file").touch()
    refused(f"unix:{tmp_path}/file/api.sock", f"cannot make {tmp_path}/file for the API's socket: ")


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    with running_api(f"unix:{path}") as api, Client(api.addresses[0]) as client:
        assert client.list_jobs() == ()


def test_a_living_server_keeps_its_socket(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'api.sock'}"
    with running_api(address), Client(address) as client:
        refused(address, "another process does")
        assert client.list_jobs() == ()


def test_a_listener_that_takes_no_connection_keeps_its_socket(tmp_path: Path) -> None:
    """The listener may belong to a stopped process: its queue is full, and connecting clients wait."""
    path = str(tmp_path / "api.sock")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
        listener.bind(path)
        listener.listen(0)
        waiting.connect(path)
        refused(f"unix:{path}", "another process does")


def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("keep me")
    refused(f"unix:{path}", "not a socket")
    assert path.read_text() == "keep me"


def test_a_taken_port_is_an_error_at_start(api: Running) -> None:
    refused(api.addresses[0], f"cannot listen on {api.addresses[0]}: Address already in use")


def test_stopping_a_server_that_never_started_is_nothing() -> None:
    ApiServer(ApiConfig(), StatusBoard(), lambda _: None, TOKENS).stop()


@pytest.mark.parametrize("timeout_s", [0.3, 10.0])
def test_nobody_at_the_address_is_unreachable(timeout_s: float) -> None:
    """The shorter time-out leaves no time for gRPC's usual retries."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with Client(address, timeout_s) as client, pytest.raises(Unreachable) as error:
            client.get_status()
        expected = f"no answer from the controller at {address}: no process listens there; is the controller running?"
        assert str(error.value) == expected


def test_nobody_at_a_name_says_which_address_was_tried() -> None:
    """A name may have several addresses, and gRPC reports only the last one."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with Client(f"localhost:{port}", 10.0) as client, pytest.raises(Unreachable) as error:
            client.get_status()
    tried = rf"no process listens at (127\.0\.0\.1|\[::1\]):{port}, one of the addresses of this name"
    assert re.search(tried, str(error.value))
