"""The whole controller on real switches: discovery, pins, cuts, kills, restarts; wrong jobs change nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.planning.verify import verify
from mininet_topos.controller_process import ControllerProcess
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import LINK_MBPS, running_fabric, settled
from mininet_topos.leaf_spine import LeafSpine
from signalbox.client import Client
from signalbox.errors import AlreadyExists, Conflict, InvalidInput
from signalbox.jobs.spec import JobSpec
from signalbox.words import Mode
from tests.support.lab.pings import address, assert_pings
from tests.support.lab.snoop import Snoop
from tests.support.wire.api_calls import ring as ring_of

pytestmark = pytest.mark.lab

LEAVES, SPINES = 3, 2
LINKS = 2 * LEAVES * SPINES
Fabric = tuple[Lab, ControllerProcess, Client]


@pytest.fixture(scope="module")
def fabric(lab_prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """Run 3 leaves x 2 spines x 2 hosts with a planned ring over the leaves, found without an inventory."""
    size = LeafSpine(LEAVES, SPINES, 2, host_mbps=LINK_MBPS, fabric_mbps=LINK_MBPS, prefix=lab_prefix)
    soon = {"discovery": {"hold_down_s": 0.5}}
    with running_fabric(size, tmp_path_factory.mktemp("controller"), settings=soon) as (lab, controller, client):
        client.register_job(ring(lab, "ring", 1))
        wait_for(lambda: pinned(client, "ring") == LEAVES, "the ring's pins", 60)
        yield lab, controller, client


def ring(lab: Lab, job_id: str, host: int) -> JobSpec:
    ips = tuple(address(lab, f"h{leaf}_{host}") for leaf in range(1, LEAVES + 1))
    return ring_of(job_id, ips, 10**6, lease_s=600.0)


def pinned(client: Client, job_id: str) -> int:
    return client.get_job(job_id).pinned


def spine_of(client: Client, job_id: str) -> dict[str, str]:
    """Return the spine to which each source's flow is pinned, as the switches confirmed it."""
    with closing(client.watch_routes(job_id)) as updates:
        return {route.src: route.switches[1] for route in next(updates).routes if route.pinned}


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
    assert_pings(lab, "h1_2", "h3_2")  # so does ECMP
    assert_pings(lab, "h2_2", "h3_1")  # known hosts find each other without a controller
    with Snoop(lab, tmp_path) as snoop:
        controller.start()
        wait_for(lambda: settled(client, LINKS), "adoption", 60)
        wait_for(lambda: snoop.count("OFPT_MULTIPART_REQUEST|OFPST_PORT request") > 0, "counters polled", 60)
        wait_for(lambda: client.get_plan() is not None, "a plan after the restart", 60)
        assert snoop.count("OFPT_FLOW_MOD") == 0
        assert snoop.count("OFPT_GROUP_MOD") == 0
        assert snoop.count("OFPT_PACKET_OUT") > 0, "the snoop does see what the controller sends"
    assert spine_of(client, "ring") == before
    assert pinned(client, "ring") == LEAVES


def test_jobs_exchange_hosts_by_the_command_line_without_a_lost_packet(fabric: Fabric, tmp_path: Path) -> None:
    lab, _, client = fabric
    near = [address(lab, f"h{leaf}_2") for leaf in (1, 2, 3)]
    back = [address(lab, f"h{leaf}_1") for leaf in (3, 2, 1)]

    def files(**endpoints: list[str]) -> list[Path]:
        specs = {
            job_id: ring(lab, job_id, 1).model_copy(update={"endpoints": tuple(ips)})
            for job_id, ips in endpoints.items()
        }
        for job_id, spec in specs.items():
            (tmp_path / f"{job_id}.json").write_text(spec.model_dump_json(exclude_defaults=True))
        return [tmp_path / f"{job_id}.json" for job_id in specs]

    def jobs(command: str, *given: Path) -> str:
        argv = [sys.executable, "-m", "signalbox", "jobs", command, *map(str, given), "--json"]
        where = {"SIGNALBOX_ADDRESS": client._address, "XDG_STATE_HOME": str(tmp_path / "state")}
        return subprocess.run(argv, check=True, capture_output=True, text=True, env={**os.environ, **where}).stdout

    for one in files(one=near, other=back):
        jobs("register", one)
    wait_for(lambda: pinned(client, "one") + pinned(client, "other") == 2 * LEAVES, "the pins of both", 60)
    before = spine_of(client, "one"), spine_of(client, "other")
    pings = [
        lab.popen(src, ["ping", "-q", "-i", "0.01", "-c", "500", "-W", "3", address(lab, dst)], stdout=subprocess.PIPE)
        for src, dst in (("h1_2", "h2_2"), ("h2_2", "h3_2"), ("h3_1", "h2_1"), ("h1_1", "h2_1"))
    ]
    for turn in range(4):
        given = (back, near) if turn % 2 == 0 else (near, back)
        changed = json.loads(jobs("update", *files(one=given[0], other=given[1])))
        assert [job["spec"]["endpoints"] for job in changed] == [*given]
        wait_for(lambda: pinned(client, "one") + pinned(client, "other") == 2 * LEAVES, "the pins of both", 60)
        now = spine_of(client, "one"), spine_of(client, "other")
        assert now == (before[::-1] if turn % 2 == 0 else before)
    for ping in pings:
        out = ping.communicate(timeout=60)[0].decode()
        assert "500 packets transmitted, 500 received, 0% packet loss" in out
    for job_id in ("one", "other"):
        client.deregister_job(job_id, force=True)


def test_neighbours_refresh_while_the_controller_is_dead(fabric: Fabric) -> None:
    """Hosts probe stale neighbour entries by unicast ARP, which no controller has to answer."""
    lab, controller, client = fabric
    assert_pings(lab, "h1_2", "h3_2")
    controller.kill()
    try:
        for host in ("h1_2", "h3_2"):
            interface = lab.topo.interface(host, 0)
            for setting in ("base_reachable_time_ms=100", "delay_first_probe_time=0", "gc_stale_time=1"):
                assert lab.popen(host, ["sysctl", "-qw", f"net.ipv4.neigh.{interface}.{setting}"]).wait() == 0
            assert lab.popen(host, ["ip", "neigh", "change", *stale(lab, host)]).wait() == 0
        assert_pings(lab, "h1_2", "h3_2", count=10)
    finally:
        controller.start()
        wait_for(lambda: settled(client, LINKS), "adoption", 60)


def stale(lab: Lab, host: str) -> list[str]:
    """Return arguments that make the host's entry for its partner stale."""
    partner = next(h for h in lab.hosts if h.name == {"h1_2": "h3_2", "h3_2": "h1_2"}[host])
    return [partner.ip, "lladdr", partner.mac, "dev", lab.topo.interface(host, 0), "nud", "stale"]


def test_a_cut_cable_is_repaired_and_comes_back(fabric: Fabric) -> None:
    lab, _, client = fabric
    spine = spine_of(client, "ring")[address(lab, "h1_1")].removeprefix(lab.topo.prefix)
    lab.cut("leaf1", spine)
    try:
        wait_for(lambda: settled(client, LINKS - 2), "the cut is noticed and repaired", 60)
        assert_pings(lab, "h1_1", "h2_1")
        assert_pings(lab, "h3_1", "h1_1")
    finally:
        lab.plug("leaf1", spine)
    wait_for(lambda: settled(client, LINKS), "the cable is used again", 60)
    wait_for(lambda: pinned(client, "ring") == LEAVES, "all pins are back", 60)
    assert_pings(lab, "h1_1", "h2_1")


def test_modes_can_be_changed_and_pins_come_and_go(fabric: Fabric) -> None:
    _, _, client = fabric
    assert client.set_mode(Mode.ECMP).pins == 0
    assert pinned(client, "ring") == 0
    assert client.set_mode(Mode.PLANNED).pins == 2 * LEAVES, "every flow and its acknowledgements"
    assert pinned(client, "ring") == LEAVES


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda lab: ring(lab, "ring", 2), AlreadyExists),
        (lambda lab: ring(lab, "thief", 1), Conflict),
        (lambda lab: JobSpec.model_construct(**{**dict(ring(lab, "zero", 2)), "lease_s": -1.0}), InvalidInput),
    ],
    ids=["another spec under a known id", "another job's pair", "a wrong field"],
)
def test_a_refused_job_changes_nothing(
    fabric: Fabric, tmp_path: Path, wrong: Callable[[Lab], JobSpec], error: type[Exception]
) -> None:
    lab, _, client = fabric
    with Snoop(lab, tmp_path) as snoop:
        wait_for(lambda: snoop.count("OFPT_PACKET_OUT") > 0, "the snoop sees the probes", 60)
        with pytest.raises(error):
            client.register_job(wrong(lab))
        assert snoop.count("OFPT_FLOW_MOD") == 0
    assert [job.spec.job_id for job in client.list_jobs()] == ["ring"]
    assert pinned(client, "ring") == LEAVES


def test_a_job_that_ends_gives_its_pins_back(fabric: Fabric) -> None:
    lab, _, client = fabric
    client.register_job(ring(lab, "second", 2))
    wait_for(lambda: pinned(client, "second") == LEAVES, "the second job's pins", 60)
    client.deregister_job("second")
    wait_for(lambda: client.get_status().pins == 2 * LEAVES, "only the first job's pins are left", 60)
    assert_pings(lab, "h1_2", "h2_2")
