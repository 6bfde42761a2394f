"""The launcher of the lab and the benchmarks, with real processes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from controller.api.client import Client, Unreachable
from controller.commands.output import fields
from controller.config import Strategy
from controller.errors import SignalboxError
from mininet_topos.controller_process import ControllerProcess


def test_a_controller_answers_until_it_is_stopped_and_ends_cleanly(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path, settings={"planning": {"strategy": "shadow"}})
    with controller.running() as client:
        assert fields(client.get_status())["strategy"] == "shadow"
        socket.create_connection(("127.0.0.1", controller.openflow_port)).close()
        assert controller.stop() == 0
    assert controller.stop() is None
    with Client(controller.address) as client, pytest.raises(Unreachable):
        client.get_status()


def test_a_killed_controller_starts_again_with_its_state(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path)
    with controller.running() as client:
        client.set_strategy(Strategy.SHADOW)
        controller.kill()
    with controller.running() as client:
        assert fields(client.get_status())["strategy"] == "shadow"


def test_a_controller_that_does_not_start_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path, settings={"planning": {"no_such_key": 1}})
    with pytest.raises(SignalboxError, match=r"(?s)ended with status 1.*no_such_key"), controller.running():
        pass
