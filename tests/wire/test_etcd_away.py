"""Controllers without etcd: one that loses it raises an alarm at once, and one that starts without it stands by."""

from __future__ import annotations

import signal
import struct
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from mininet_topos.controller_process import ControllerProcess
from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.waiting import DEADLINE_S, until
from tests.support.wire.api_calls import ring
from tests.support.wire.etcd import member, running_etcd
from tests.support.wire.fake_switch import EQUAL, NOCHANGE, ROLE_REPLY, ROLE_REQUEST, SLAVE, FakeSwitch

GENERATION = 5


def becomes_slave(connection: FakeSwitch) -> None:
    """Answer the role requests of a controller until it requests the role SLAVE. Any other one fails the test."""
    role = NOCHANGE
    while role == NOCHANGE:
        asked = connection.expect(ROLE_REQUEST)
        (role,) = struct.unpack_from("!I", asked.body)
        connection.send(ROLE_REPLY, struct.pack("!I4xQ", role or EQUAL, GENERATION), asked.xid)
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


def alarms(client: Client) -> set[int]:
    return {alarm.kind for alarm in client.get_status().alarms}


def test_an_alarm_comes_with_the_loss_of_etcd_and_goes_with_its_return(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as etcd:
        controller = ControllerProcess(tmp_path, store=f"etcd://{etcd.endpoint}")
        with controller.running() as client:
            assert not alarms(client)
            etcd.kill()
            until(lambda: alarms(client) == {pb.ALARM_KIND_STATE_NOT_SAVED})
            etcd.start()
            until(lambda: not alarms(client))
