"""No module is imported while requests are served: an import takes time, and fails without a free descriptor."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

import grpc

from mininet_topos.controller_process import ControllerProcess
from tests.support.waiting import DEADLINE_S
from tests.support.wire.fake_switch import FakeSwitch
from tests.wire.test_roles import METHODS, requests, spec

PROGRAM = "tests.support.wire.recorded_imports"
SERVING = ("control-loop", "grpc-api")
SECONDS = 1
"""Seconds for each stream; a watch without news does not answer at all."""


def test_no_method_imports_anything_in_the_threads_that_serve(tmp_path: Path) -> None:
    file = tmp_path / "imports"
    controller = ControllerProcess(tmp_path, program=(PROGRAM, str(file)))
    with controller.running() as client:
        FakeSwitch(controller.openflow_port, 7).connect().close()
        valid = requests(client.register_job(spec()).lease_token)
        with grpc.insecure_channel(controller.address) as channel:
            call_all(channel, {name: message.SerializeToString() for name, message in valid.items()})
    lines = file.read_text().splitlines() if file.exists() else []
    assert {line for line in lines if line.startswith(SERVING)} == set()


def call_all(channel: grpc.Channel, valid: Mapping[str, bytes]) -> None:
    """Call every method with a valid request, with an empty one, and with bytes that are no request."""
    with ExitStack() as stack:
        for name in sorted(METHODS, key=lambda name: name == "DeregisterJob"):
            path = f"/{METHODS[name].containing_service.full_name}/{name}"
            for data in (valid[name], b"", b"\xff\xff"):
                with suppress(grpc.RpcError):
                    if METHODS[name].server_streaming:
                        stream: Any = cast(Any, channel.unary_stream(path))(data, timeout=SECONDS)
                        stack.callback(stream.cancel)
                        next(iter(stream))
                    else:
                        cast(Any, channel.unary_unary(path))(data, timeout=DEADLINE_S)
