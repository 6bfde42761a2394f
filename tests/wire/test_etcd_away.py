"""A controller that loses its etcd raises an alarm at once, not only when a client requests a change."""

from __future__ import annotations

from pathlib import Path

from mininet_topos.controller_process import ControllerProcess
from signalbox.client import Client
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.waiting import until
from tests.support.wire.etcd import running_etcd


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
