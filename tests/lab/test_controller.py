"""The whole controller on real switches: discovery, pins, proofs, and a kill with a restart.

A deleted spine is named within seconds, in the API, on the command line and in the metrics, until its return. Other
modules test repairs (``test_three_tiers``) and modes (``test_failures``)."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.planning.verify import verify
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.running_fabric import LINK_MBPS, running_fabric, settled
from mininet_topos.leaf_spine import LeafSpine
from signalbox.client import Client
from signalbox.jobs.spec import JobSpec
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.lab.counters import metric
from tests.support.lab.fabric import Fabric, pinned, routes
from tests.support.lab.fabric import ring as fabric_ring
from tests.support.lab.pings import address, assert_pings
from tests.support.lab.snoop import Snoop
from tests.support.lab.waits import wait_for

LEAVES, SPINES = 3, 2
LINKS = 2 * LEAVES * SPINES


@pytest.fixture(scope="module")
def fabric(lab_prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """Run 3 leaves x 2 spines x 2 hosts with a planned ring over the leaves, found without an inventory."""
    size = LeafSpine(LEAVES, SPINES, 2, host_mbps=LINK_MBPS, fabric_mbps=LINK_MBPS, prefix=lab_prefix)
    soon = {"discovery": {"hold_down_s": 0.5, "adoption_patience_s": 5.0}}
    with running_fabric(size, tmp_path_factory.mktemp("controller"), settings=soon) as (lab, controller, client):
        client.register_job(ring(lab, "ring", 1))
        wait_for(lambda: pinned(client, "ring") == LEAVES, "the ring's pins")
        yield lab, controller, client


def ring(lab: Lab, job_id: str, host: int) -> JobSpec:
    return fabric_ring(lab, job_id, [f"h{leaf}_{host}" for leaf in range(1, LEAVES + 1)])


def spine_of(client: Client, job_id: str) -> dict[str, str]:
    return {route.src: route.switches[1] for route in routes(client, job_id) if route.pinned}


def test_the_first_packet_to_a_host_that_nobody_knew_arrives(fabric: Fabric) -> None:
    lab, _, client = fabric
    unknown = {address(lab, f"h{leaf}_2") for leaf in (1, 2, 3)}
    assert not unknown & {host.ip for host in client.get_fabric().hosts}
    assert_pings(lab, "h3_2", "h1_2", count=1)


def test_the_routes_in_force_come_with_their_proof(fabric: Fabric) -> None:
    """The proof has the paths that ``WatchRoutes`` returns."""
    _, _, client = fabric
    proof = json.loads(client.get_plan_proof().document)
    assert verify(proof) == ("worst slowdown 1, at least 1 with any routes; 1 of 1 slowdowns proven", 0)
    spines = {flow["from"]: proof["links"][flow["route"][0][1][1]][1] for flow in proof["flows"]}
    assert spines == spine_of(client, "ring")


def test_a_killed_controller_costs_no_rule_and_no_packet(fabric: Fabric, tmp_path: Path) -> None:
    lab, controller, client = fabric
    assert_pings(lab, "h1_1", "h2_1")
    assert_pings(lab, "h1_2", "h3_2")
    assert_pings(lab, "h2_2", "h1_1")
    before = spine_of(client, "ring")
    controller.kill()
    assert_pings(lab, "h1_1", "h2_1")  # pins forward without a controller
    assert_pings(lab, "h2_2", "h3_1")  # known hosts find each other without a controller
    for host, partner in (("h1_2", "h3_2"), ("h3_2", "h1_2")):
        make_stale(lab, host, partner)
    assert_pings(lab, "h1_2", "h3_2", count=10)  # ECMP forwards, and hosts refresh their neighbours by unicast ARP
    with Snoop(lab, tmp_path) as snoop:
        controller.start()
        wait_for(lambda: settled(client, LINKS), "adoption")
        wait_for(lambda: snoop.count("OFPT_MULTIPART_REQUEST|OFPST_PORT request") > 0, "counters polled")
        wait_for(lambda: client.get_plan() is not None, "a plan after the restart")
        assert snoop.count("OFPT_FLOW_MOD") == 0
        assert snoop.count("OFPT_GROUP_MOD") == 0
        assert snoop.count("OFPT_PACKET_OUT") > 0, "the snoop does see what the controller sends"
    assert spine_of(client, "ring") == before
    assert pinned(client, "ring") == LEAVES


def make_stale(lab: Lab, host: str, partner: str) -> None:
    """Make the host's entry for its partner stale, and let the host probe it soon."""
    interface = lab.topo.interface(host, 0)
    settings = ("base_reachable_time_ms=100", "delay_first_probe_time=0", "gc_stale_time=1")
    mac = next(each.mac for each in lab.hosts if each.name == partner)
    entry = (address(lab, partner), "lladdr", mac, "dev", interface, "nud", "stale")
    sysctl = ("sysctl", "-qw", *(f"net.ipv4.neigh.{interface}.{setting}" for setting in settings))
    for argv in (sysctl, ("ip", "neigh", "change", *entry)):
        assert lab.popen(host, argv).wait() == 0


class Seen:
    """Alarms, metrics and command output that an operator sees."""

    def __init__(self, fabric: Fabric) -> None:
        self.lab, self.controller, self.client = fabric

    def alarms(self) -> dict[str, str]:
        return {
            pb.AlarmKind.Name(alarm.kind).removeprefix("ALARM_KIND_").lower(): alarm.subject
            for alarm in self.client.get_status().alarms
        }

    def up(self, what: str, **labels: str) -> list[float]:
        return metric(self.controller, f"signalbox_{what}_up", **labels)

    def cli(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "controller", *arguments, "--address", self.controller.address]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def wait_for_alarms(self, **subjects: str) -> None:
        wait_for(lambda: subjects.keys() <= self.alarms().keys(), f"the alarms {', '.join(subjects)}")
        assert self.alarms() == subjects

    def wait_for_repair(self) -> None:
        wait_for(lambda: settled(self.client, LINKS), "the links")
        wait_for(lambda: not self.alarms(), "the end of all alarms")
        assert not self.client.get_fabric().parts_down


@pytest.fixture
def seen(fabric: Fabric) -> Seen:
    lab, _, client = fabric
    assert_pings(lab, "h1_1", "h2_1")
    wait_for(lambda: pinned(client, "ring") == LEAVES, "the ring's pins")
    return Seen(fabric)


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
        assert seen.up("switch", switch=spine) == [0.0]
        cables = seen.up("link")
        assert (cables.count(0.0), cables.count(1.0)) == (LINKS / 2, LINKS / 2)
        assert f"{LEAVES + SPINES - 1} of {LEAVES + SPINES}" in seen.cli("status")
        assert re.search(rf"switch .* {spine} .* UTC", seen.cli("fabric"))
        assert_pings(seen.lab, "h1_1", "h2_1")
    finally:
        seen.lab.start_switch("spine2")
    seen.wait_for_repair()
    assert seen.up("switch", switch=spine) == [1.0]
