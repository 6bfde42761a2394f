"""No module is imported while requests are served: an import takes time, and fails without a free descriptor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

import grpc

from mininet_topos.controller_process import ControllerProcess
from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import JobSpec
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import Mode
from tests.support.wire.fake_switch import FakeSwitch

PROGRAM = "tests.support.wire.recorded_imports"
SERVING = ("control-loop", "grpc-api")
SECONDS = 1
"""Seconds for each call; a watch without news does not answer at all."""


def test_no_method_imports_anything_in_the_threads_that_serve(tmp_path: Path) -> None:
    file = tmp_path / "imports"
    controller = ControllerProcess(tmp_path, program=(PROGRAM, str(file)))
    with controller.running() as client:
        FakeSwitch(controller.openflow_port, 7).connect().close()
        call_all(client)
        with grpc.insecure_channel(controller.address) as channel:
            call_all_raw(channel)
    lines = file.read_text().splitlines() if file.exists() else []
    assert {line for line in lines if line.startswith(SERVING)} == set()


def call_all(client: Client) -> None:
    """Call all methods as programs do, with answers and errors."""
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1_000_000}]
    spec = JobSpec.parse({"job_id": "job", "endpoints": ["10.0.0.1", "10.0.0.2"], "transfers": transfers})
    calls: list[Callable[[], object]] = [
        lambda: client.register_job(spec),
        lambda: client.renew_lease("job"),
        lambda: client.report_iterations("job", ()),
        lambda: client.report_connections("job", "10.0.0.1", ()),
        lambda: client.get_job("job"),
        client.list_jobs,
        client.get_fabric,
        client.get_plan,
        client.get_status,
        client.replan,
        lambda: client.set_mode(Mode.SHADOW),
        lambda: client.explain("job"),
        client.what_if,
        lambda: client.deregister_job("job"),
        lambda: client.renew_lease("job"),
    ]
    for call in calls:
        with suppress(SignalboxError):
            call()


def call_all_raw(channel: grpc.Channel) -> None:
    """Call every method with an empty request, and with bytes that are no request."""
    with ExitStack() as stack:
        for service in pb.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                path = f"/{service.full_name}/{method.name}"
                for data in (b"", b"\xff\xff"):
                    if method.server_streaming:
                        stream: Any = cast(Any, channel.unary_stream(path))(data, timeout=SECONDS)
                        stack.callback(stream.cancel)
                        with suppress(grpc.RpcError):
                            next(iter(stream))
                    else:
                        with suppress(grpc.RpcError):
                            cast(Any, channel.unary_unary(path))(data, timeout=SECONDS)
