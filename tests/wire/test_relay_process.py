"""The relay process: what becomes of clients when it ends, hangs or cannot begin."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import grpc
import pytest

from controller.api import calls
from controller.api.relay import accepting
from controller.api.relay.accepting import Listener, Pace
from controller.api.relay.channel import Failed
from controller.api.relay.connections import ConnectionLimits
from controller.api.relay.relay import Relay
from mininet_topos.controller_process import ControllerProcess
from mininet_topos.lab.record import wait_for
from signalbox.client import Client
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from tests.support.wire.control_stand_in import Running, running_api

DEADLINE_S = 30.0


def relay_process() -> BaseProcess:
    (process,) = (child for child in multiprocessing.active_children() if child.name == "relay")
    return process


def wait_until_replaced(api: Running, times: int) -> None:
    wait_for(lambda: api.control.board.replaced["relay"]() == times, "the next process", DEADLINE_S, 0.01)


def stop(process: BaseProcess) -> None:
    assert process.pid
    os.kill(process.pid, signal.SIGSTOP)


@pytest.mark.parametrize("end", [BaseProcess.kill, stop], ids=["ends", "hangs"])
def test_clients_connect_again_through_the_next_process(
    end: Callable[[BaseProcess], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "TICK_S", 0.05)
    with running_api() as api, grpc.insecure_channel(api.addresses[0]) as channel:
        controller = pb_grpc.ControllerServiceStub(channel)  # type: ignore[no-untyped-call]
        for times in (1, 2):
            controller.GetStatus(pb.GetStatusRequest(), timeout=DEADLINE_S)
            assert len(api.server._relay.connections) == 1
            end(relay_process())
            wait_until_replaced(api, times)
            assert len(api.server._relay.connections) == 0
            with suppress(grpc.RpcError):  # it may be sent over the connection that has just ended
                controller.GetStatus(pb.GetStatusRequest(), timeout=DEADLINE_S, wait_for_ready=True)
            controller.GetStatus(pb.GetStatusRequest(), timeout=DEADLINE_S, wait_for_ready=True)


def test_a_client_that_connects_between_two_processes_waits_for_the_next_one() -> None:
    with running_api() as api:
        with Client(api.addresses[0]) as client:
            client.get_status()
        relay_process().kill()
        with Client(api.addresses[0]) as client:
            client.get_status()


def no_process(*_: object) -> None:
    os._exit(3)


def test_a_first_process_that_cannot_begin_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "work", no_process)

    async def served() -> None:
        limits = ConnectionLimits(10, 10, 1.0)
        front = Relay(limits, Pace(1e9, 800.0, 1000.0, 10, 10.0), lambda *_: None)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            front.listen([Listener(listening, "127.0.0.1:0", "/nowhere", is_unix=False, has_tls=False)])
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    front.tick(0.0)
                    await asyncio.sleep(0.2)

    with pytest.raises(ChildProcessError, match="the relay process ended with status 3 before it could accept"):
        asyncio.run(served())


def test_a_fault_in_the_process_is_in_the_controllers_log(capsys: pytest.CaptureFixture[str]) -> None:
    front = Relay(ConnectionLimits(10, 10, 1.0), Pace(1e9, 800.0, 1000.0, 10, 10.0), lambda *_: None)
    front._take(Failed("it was so"))
    assert "it was so" in capsys.readouterr().out


def test_a_killed_controller_leaves_no_process_that_holds_its_port(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path)
    with controller.running() as client:
        assert controller.process
        children = Path(f"/proc/{controller.process.pid}/task")
        pids = [int(pid) for file in children.glob("*/children") for pid in file.read_text().split()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        controller.kill()
        wait_for(lambda: not any(map(_runs, pids)), "the end of its processes", DEADLINE_S, 0.01)
    with controller.running() as client:
        client.get_status()


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[-1][:3]
