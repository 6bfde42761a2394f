"""A controller with few file descriptors behind HAProxy: clients of one port leave descriptors for other ports."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarks.api_abuse import http2
from controller.config import ApiConfig
from mininet_topos.controller_process import ControllerProcess, Settings, reserve_port
from mininet_topos.haproxy_process import haproxy_before
from mininet_topos.lab.record import wait_for
from signalbox.client import Client, Unreachable, resuming
from signalbox.errors import SignalboxError
from tests.support.waiting import beside
from tests.support.wire.api_calls import numbered_job
from tests.support.wire.fake_switch import FakeSwitch

DESCRIPTORS = 256
HELD = 300
"""Number of connections that the test opens to each port."""
PROGRAM = "tests.support.wire.few_descriptors"


def switches(client: Client) -> int:
    return len(client.get_fabric().switches)


def first_snapshot(watch: Iterator[Any]) -> Any:
    return next(message for message in watch if message.snapshot)


def test_switches_connect_and_changes_are_saved_while_clients_hold_all_connections(tmp_path: Path) -> None:
    """A watch through HAProxy is resumed when the controller was killed."""
    port, metrics = reserve_port(), reserve_port()
    api = ApiConfig(listen=(f"127.0.0.1:{port}",), proxy_socket=tmp_path / "proxy.sock", max_connections=56)
    settings: Settings = {
        "api": {"listen": [*api.listen], "proxy_socket": str(api.proxy_socket), "max_connections": 56},
        "metrics": {"port": metrics},
    }
    controller = ControllerProcess(tmp_path, settings=settings, program=(PROGRAM, str(DESCRIPTORS)))
    with ExitStack() as stack:
        stack.enter_context(haproxy_before(tmp_path, api))
        controller.start()
        stack.callback(controller.stop)
        client = stack.enter_context(Client(f"127.0.0.1:{port}"))
        wait_for(lambda: controller.ready(client), "the controller", 60, 0.05)
        lost: list[SignalboxError] = []
        watch = resuming(client.watch_jobs, lost.append, pause=lambda _: None)
        assert next(watch).snapshot
        for target in (port, metrics, controller.openflow_port):
            for number in range(HELD):
                held = stack.enter_context(socket.socket())
                held.bind((f"127.0.0.{2 + number % 4}", 0))
                with suppress(ConnectionError):  # it may be refused at any moment
                    held.connect(("127.0.0.1", target))
                    if target == port and number % 2:
                        held.sendall(http2.hello())
        switch = FakeSwitch(controller.openflow_port, 7).connect()
        stack.callback(switch.close)
        wait_for(lambda: switches(client) == 1, "the switch", 60, 0.05)
        for number in range(20):
            client.register_job(numbered_job(number))
        controller.kill()
        resumed = beside(first_snapshot, watch)
        wait_for(lambda: bool(lost), "the end of the watch", 60, 0.05)
        controller.start()
        again = stack.enter_context(Client(f"127.0.0.1:{port}"))
        wait_for(lambda: controller.ready(again), "the controller", 60, 0.05)
        assert len(list(again.list_jobs())) == 20
        assert len(resumed.result(60).jobs) == 20
        watch.close()
    assert isinstance(lost[0], Unreachable)
