"""A controller whose southbound is a process of its own: what it serves, and what ends with what."""

import os
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from mininet_topos.controller_process import ControllerProcess
from tests.support.waiting import until
from tests.support.wire.fake_switch import FakeSwitch
from tests.wire.test_sighup import Reloaded

OWN = {"openflow": {"own_process": True}}


def southbound_of(controller: ControllerProcess) -> int:
    """Return the id of the child that listens for switches: the only one with the controller's own priority."""
    assert controller.process
    pid = controller.process.pid
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    niceness = os.getpriority(os.PRIO_PROCESS, pid)
    return next(
        child
        for child in children
        if os.getpriority(os.PRIO_PROCESS, child) == niceness
        and b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes()
    )


def test_switches_are_served_until_the_process_ends_and_the_controller_with_it(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path, settings=OWN)
    with controller.running() as client, closing(FakeSwitch(controller.openflow_port, 7).connect()) as switch:
        assert switch.expect_multipart(1), "rules are read"
        until(lambda: [(found.dpid, found.name) for found in client.get_fabric().switches] == [(7, "fake7")])
        os.kill(southbound_of(controller), signal.SIGKILL)
        assert controller.process
        assert controller.process.wait(60) == 1
        switch.wait_closed()
    assert "the process of the southbound ended with status -9" in controller.log.read_text()


def test_nothing_of_a_killed_controller_listens(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path, settings=OWN)
    with controller.running():
        with closing(FakeSwitch(controller.openflow_port, 7).connect()) as switch:
            assert controller.process
            controller.process.kill()
            switch.wait_closed()
        controller.kill()
        with replace(controller).running():
            FakeSwitch(controller.openflow_port, 7).connect().close()
            assert controller.stop() is None


def test_a_port_that_is_taken_ends_the_controller_with_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = ControllerProcess(tmp_path / "other", settings=OWN)
    with one.running():
        two = ControllerProcess(tmp_path, openflow_port=one.openflow_port, settings=OWN)
        two.start()
        assert two.process
        assert two.process.wait(60) == 1
        assert "cannot listen for OpenFlow" in two.last_lines()


def test_the_process_has_new_certificates_after_a_sighup(tmp_path: Path) -> None:
    reloaded = Reloaded(tmp_path)
    openflow = {**reloaded.controller.settings["openflow"], "own_process": True}
    reloaded.controller.settings = {**reloaded.controller.settings, "openflow": openflow}
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
