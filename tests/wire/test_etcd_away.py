"""Controllers without etcd: one that loses it raises an alarm at once, and one that starts without it stands by."""

from __future__ import annotations

import signal
import socket
import struct
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from benchmarks.openflow_bytes import Type
from mininet_topos.controller_process import ControllerProcess
from signalbox.client import Client
from signalbox.errors import SignalboxError
from tests.support.waiting import DEADLINE_S, until
from tests.support.wire.api_calls import ring
from tests.support.wire.etcd import member, running_etcd
from tests.support.wire.fake_switch import EQUAL, NOCHANGE, SLAVE, FakeSwitch

GENERATION = 5


def becomes_slave(connection: FakeSwitch) -> None:
    """Answer the role requests of a controller until it requests the role SLAVE. Any other one fails the test."""
    role = NOCHANGE
    while role == NOCHANGE:
        asked = connection.expect(Type.ROLE_REQUEST)
        (role,) = struct.unpack_from("!I", asked.body)
        connection.send(Type.ROLE_REPLY, struct.pack("!I4xQ", role or EQUAL, GENERATION), asked.xid)
    assert role == SLAVE


def test_a_member_that_starts_without_etcd_stands_by_and_claims_no_switch(tmp_path: Path, prefix: str) -> None:
    with running_etcd(tmp_path / "etcd") as etcd, ExitStack() as ends:
        leader, late, wrong = members = [member(etcd, prefix, tmp_path / name) for name in "abc"]
        wrong.settings = {**wrong.settings, "jobs": {"max_virtual_links": 1}}
        for each in members:
            ends.callback(each.kill)
        leader.start("--standby")
        with Client(leader.address) as client:
            until(lambda: leader.ready(client))
            client.register_job(ring("job"))
            etcd.kill()
            for each in (late, wrong):
                each.start("--standby")
                until(partial(logged, each, '"standing by until etcd answers"'))
            assert late.process
            late.process.send_signal(signal.SIGHUP)
            until(partial(logged, late, "event=reloaded"))
            until(partial(listens, late.openflow_port))
            with closing(FakeSwitch(late.openflow_port, 7, mute=True).connect()) as switch:
                becomes_slave(switch)
            with (
                Client(late.address) as other,
                pytest.raises(SignalboxError, match="stands by, and etcd does not answer"),
            ):
                other.get_status()
            etcd.start()
            until(lambda: {one.name for one in client.list_members()} >= {"a", "b"})
            until(partial(logged, late, '"standing by"'))
            assert wrong.process
            wrong.process.wait(DEADLINE_S)
            assert "max_virtual_links" in wrong.last_lines()


def logged(controller: ControllerProcess, text: str) -> bool:
    controller.check()
    return text in controller.log.read_text()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
