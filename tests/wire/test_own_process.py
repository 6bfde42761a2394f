"""Southbound of a member in its own process: what it serves, and which process ends with which."""

import os
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.openflow_bytes import Multipart
from mininet_topos.controller_process import ControllerProcess
from tests.support.waiting import until
from tests.support.wire.etcd import EtcdProcess, member
from tests.support.wire.fake_switch import MASTER
from tests.wire.test_leader_link import A, Switch
from tests.wire.test_sighup import Reloaded


@pytest.fixture
def controller(etcd: EtcdProcess, prefix: str, tmp_path: Path) -> ControllerProcess:
    return member(etcd, prefix, tmp_path / "a")


def southbound_of(controller: ControllerProcess) -> int:
    """Return the id of the child that listens for switches: the last one with the controller's own priority.

    The one before may be the fork of ``tests.support.preloaded`` that makes children."""
    assert controller.process
    pid = controller.process.pid
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    niceness = os.getpriority(os.PRIO_PROCESS, pid)
    *_, found = (
        child
        for child in children
        if os.getpriority(os.PRIO_PROCESS, child) == niceness
        and b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes()
    )
    return found


def test_switches_are_served_until_the_process_ends_and_the_controller_with_it(controller: ControllerProcess) -> None:
    switch = Switch(A)
    with controller.running() as client, closing(switch.connect(controller.openflow_port)) as connection:
        switch.becomes(connection, MASTER)
        assert connection.expect_multipart(Multipart.FLOW), "rules are read"
        until(lambda: [(found.dpid, found.name) for found in client.get_fabric().switches] == [(A, "fake1")])
        os.kill(southbound_of(controller), signal.SIGKILL)
        assert controller.process
        assert controller.process.wait(60) == 1
        connection.wait_closed()
    assert "the process of the southbound ended with status -9" in controller.log.read_text()


def test_nothing_of_a_killed_controller_listens(controller: ControllerProcess) -> None:
    with controller.running():
        with closing(Switch(A).connect(controller.openflow_port)) as connection:
            assert controller.process
            controller.process.kill()
            connection.wait_closed()
        controller.kill()
        with replace(controller).running("--standby"):
            Switch(A).connect(controller.openflow_port).close()


def test_a_port_that_is_taken_ends_the_controller_with_a_clear_error(
    etcd: EtcdProcess, prefix: str, tmp_path: Path, controller: ControllerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controllers are new programs: of 58 forks (``tests.support.preloaded``), one did not end as expected."""
    monkeypatch.setenv("PYTHONHASHSEED", "1")  # so that they are no forks
    with controller.running():
        for its_prefix, options in ((f"{prefix}other/", ()), (prefix, ("--standby",))):
            other = member(etcd, its_prefix, tmp_path / f"other{len(options)}")
            other.openflow_port = controller.openflow_port
            other.start(*options)
            assert other.process
            assert other.process.wait(60) == 1
            assert "cannot listen for OpenFlow" in other.last_lines()


def test_the_process_has_new_certificates_after_a_sighup(etcd: EtcdProcess, prefix: str, tmp_path: Path) -> None:
    reloaded = Reloaded(tmp_path)
    as_member = member(etcd, prefix, tmp_path / "member")
    settings = {**reloaded.controller.settings, **as_member.settings}
    reloaded.controller = replace(reloaded.controller, settings=settings, store=as_member.store)
    with reloaded.controller.running():
        assert reloaded.openflow_over(reloaded.first)
        reloaded.certify(reloaded.second)
        reloaded.hang_up("event=reloaded")

        def is_replaced() -> bool:
            try:
                return bool(reloaded.openflow_over(reloaded.second))
            except OSError:
                return False

        until(is_replaced)
