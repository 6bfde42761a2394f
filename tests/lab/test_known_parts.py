"""Broken parts are named within seconds, in the API, on the command line and in the metrics, until their repair."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

from controller.store.sqlite_store import SqliteStore
from mininet_topos.controller_process import ControllerProcess, Settings, reserve_port
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import LINK_MBPS, running_fabric, settled
from mininet_topos.leaf_spine import LeafSpine
from signalbox.client import Client
from signalbox.jobs.spec import JobSpec
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.lab.pings import address, assert_pings

pytestmark = pytest.mark.lab

LEAVES, SPINES = 2, 2
LINKS = 2 * LEAVES * SPINES
DEADLINE_S = 60.0


class Seen:
    """Alarms, metrics and command output that an operator sees.

    ``metrics``: port of the metrics server."""

    def __init__(self, lab: Lab, controller: ControllerProcess, client: Client, metrics: int) -> None:
        self.lab, self.controller, self.client = lab, controller, client
        self._metrics = metrics

    def alarms(self) -> dict[str, str]:
        """Return the subject of the alarm of each kind."""
        return {
            pb.AlarmKind.Name(alarm.kind).removeprefix("ALARM_KIND_").lower(): alarm.subject
            for alarm in self.client.get_status().alarms
        }

    def up(self, series: str) -> list[float]:
        """Return the values of the metrics whose name and labels begin with ``series``."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return [float(value) for value in re.findall(rf"^{re.escape(series)}[^}}]*}} (\S+)$", text, re.MULTILINE)]

    def cli(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "controller", *arguments, "--address", self.controller.address]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def wait_for_alarms(self, **subjects: str) -> None:
        """Wait for exactly these alarms, by kind."""
        wait_for(lambda: subjects.keys() <= self.alarms().keys(), f"the alarms {', '.join(subjects)}", DEADLINE_S)
        assert self.alarms() == subjects

    def wait_for_repair(self) -> None:
        wait_for(lambda: settled(self.client, LINKS), "the links", DEADLINE_S)
        wait_for(lambda: not self.alarms(), "the end of all alarms", DEADLINE_S)
        assert not self.client.get_fabric().parts_down


@pytest.fixture(scope="module")
def seen(lab_prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Run 2 leaves x 2 spines x 1 host, and a job of both hosts."""
    size = LeafSpine(LEAVES, SPINES, 1, host_mbps=LINK_MBPS, fabric_mbps=LINK_MBPS, prefix=lab_prefix)
    metrics = reserve_port()
    settings: Settings = {"metrics": {"port": metrics}, "discovery": {"hold_down_s": 0.5, "adoption_patience_s": 5.0}}
    with running_fabric(size, tmp_path_factory.mktemp("controller"), settings=settings) as (lab, controller, client):
        assert_pings(lab, "h1_1", "h2_1")
        transfer = {"src": 0, "dst": 1, "bytes_per_iteration": 10**6}
        hosts = [address(lab, "h1_1"), address(lab, "h2_1")]
        client.register_job(
            JobSpec.parse({"job_id": "pair", "endpoints": hosts, "transfers": [transfer], "lease_s": 600})
        )
        wait_for(lambda: client.get_job("pair").pinned == 1, "the job's pin", 60)
        yield Seen(lab, controller, client, metrics)


def test_a_deleted_spine_is_named_everywhere_until_it_is_back(seen: Seen) -> None:
    spine = seen.lab.bridge("spine2")
    assert seen.alarms() == {}
    began = time.time()
    seen.lab.stop_switch("spine2")
    try:
        seen.wait_for_alarms(switch_down=spine)
        (down,) = (part for part in seen.client.get_fabric().parts_down if part.kind == pb.PART_KIND_SWITCH)
        assert down.name == spine
        assert began - 1 < down.down_time.seconds <= time.time()
        assert seen.up(f'signalbox_switch_up{{switch="{spine}"') == [0.0]
        cables = seen.up("signalbox_link_up{")
        assert (cables.count(0.0), cables.count(1.0)) == (LINKS / 2, LINKS / 2)
        assert f"{LEAVES + SPINES - 1} of {LEAVES + SPINES}" in seen.cli("status")
        assert re.search(rf"switch .* {spine} .* UTC", seen.cli("fabric"))
        assert_pings(seen.lab, "h1_1", "h2_1")
    finally:
        seen.lab.start_switch("spine2")
    seen.wait_for_repair()
    assert seen.up(f'signalbox_switch_up{{switch="{spine}"') == [1.0]


def test_a_cut_cable_is_named_across_a_restart_of_the_controller(seen: Seen) -> None:
    seen.lab.cut("leaf1", "spine1")
    try:
        wait_for(lambda: "link_down" in seen.alarms(), "the alarm", DEADLINE_S)
        (down,) = seen.client.get_fabric().parts_down
        assert seen.alarms() == {"link_down": down.name}
        assert down.name.startswith(seen.lab.bridge("leaf1"))
        state = SqliteStore(seen.controller.folder / "state")
        wait_for(lambda: any(part.down_since for part in state.look().parts.values()), "the part on disk", DEADLINE_S)
        seen.controller.kill()
        seen.controller.start()
        wait_for(lambda: settled(seen.client, LINKS - 2), "the others", 60)
        assert list(seen.client.get_fabric().parts_down) == [down], "since the same time"
        wait_for(lambda: seen.alarms() == {"link_down": down.name}, "the same alarm alone", 60)
    finally:
        seen.lab.plug("leaf1", "spine1")
    seen.wait_for_repair()


def test_a_dead_host_cable_of_a_job_is_named(seen: Seen) -> None:
    host = address(seen.lab, "h1_1")
    seen.lab.cut("h1_1", "leaf1")
    try:
        seen.wait_for_alarms(host_down=host, flows_without_path="plan")
        assert seen.up(f'signalbox_host_up{{host="{host}"') == [0.0]
    finally:
        seen.lab.plug("h1_1", "leaf1")
    seen.wait_for_repair()


def test_a_switch_that_is_forgotten_is_not_missed(seen: Seen) -> None:
    spine = seen.lab.bridge("spine2")
    seen.lab.stop_switch("spine2")
    try:
        seen.wait_for_alarms(switch_down=spine)
        assert seen.cli("forget", spine).startswith(f"forgot {spine}, ")
        assert seen.alarms() == {}
        assert seen.up(f'signalbox_switch_up{{switch="{spine}"') == []
    finally:
        seen.lab.start_switch("spine2")
    seen.wait_for_repair()
