"""A direct-connect fabric on emulated optical switches, without a controller: its circuits, its rates, a whole job."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.circuits.wiring.circuits import circulant
from mininet_topos.direct_connect import DirectConnect
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, run, wait_for
from mininet_topos.lab.static_routes import install_circuits
from mininet_topos.lab.whole_training import WholeTraining
from mininet_topos.probe.queues import large_socket_buffers
from tests.support.lab.pings import address

pytestmark = pytest.mark.lab

SERVERS, STEPS, MBPS = 12, (1, 5, 7, 11), 2.0
ECHOES = 'for ip in "$@"; do ping -c 1 -w 20 $ip > /dev/null || echo $ip & done; wait'
TRAFFIC_S = 3


@pytest.fixture(scope="module")
def fabric(lab_prefix: str) -> Iterator[Lab]:
    topo = DirectConnect(SERVERS, len(STEPS), MBPS, prefix=lab_prefix)
    with large_socket_buffers(), Lab(topo, controller=None) as lab:
        install_circuits(lab, circulant(SERVERS, STEPS))
        yield lab


def test_optical_switches_are_numbered_and_cabled_as_the_configuration_says(fabric: Lab) -> None:
    described = run("ovs-ofctl", "-O", "OpenFlow13", "show", fabric.bridge("optical4"))
    assert f"dpid:{0x104:016x}" in described
    assert f" {SERVERS}({fabric.topo.interface('optical4', SERVERS)})" in described
    peer = run("ip", "-o", "link", "show", "dev", fabric.topo.interface("optical4", SERVERS))
    assert fabric.topo.interface("server12", 5) in peer


def test_every_pair_reaches_each_other_though_packets_leave_by_the_port_that_they_came_in_by(fabric: Lab) -> None:
    programs = {
        host.name: fabric.popen(
            host.name,
            ["sh", "-c", ECHOES, "sh", *(other.ip for other in fabric.hosts if other is not host)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for host in fabric.hosts
    }
    assert {name: program.communicate()[0] for name, program in programs.items()} == dict.fromkeys(programs, "")


@pytest.mark.alone
def test_a_circuit_carries_the_rate_of_an_interface_and_not_more(fabric: Lab, tmp_path: Path) -> None:
    shared = ["--rendezvous", str(tmp_path), "--name", "sink"]
    program = [sys.executable, "-m", "mininet_topos.demo.traffic"]
    sink_argv = [*program, "sink", "--bind", address(fabric, "h2_1"), *shared]
    sink = fabric.popen("h2_1", sink_argv, stdout=subprocess.PIPE, text=True)
    source = fabric.popen("h1_1", [*program, "source", "--seconds", str(TRAFFIC_S), *shared], stdout=subprocess.DEVNULL)
    carried = json.loads(sink.communicate(timeout=60)[0])
    assert source.wait(60) == 0
    mbps = carried["bytes"] * 8 / carried["seconds"] / 1e6
    assert 0.6 * MBPS < mbps < 1.02 * MBPS  # 0.956 is the ideal; a busy machine may give less


def job(lab: Lab, **fields: Any) -> dict[str, Any]:
    rings = [{"name": f"by {step}", "ranks": [i * step % SERVERS for i in range(SERVERS)]} for step in STEPS]
    collectives = [
        {"algorithm": "all_to_all", "groups": ["by 1"], "bytes_per_iteration": 120_000, "phase": 0},
        {
            "algorithm": "ring_all_reduce",
            "groups": [ring["name"] for ring in rings],
            "bytes_per_iteration": 96_000,
            "phase": 1,
        },
    ]
    endpoints = [host.ip for host in lab.hosts]
    return {"job_id": "recommender", "endpoints": endpoints, "groups": rings, "collectives": collectives, **fields}


@pytest.mark.alone
def test_a_whole_job_with_an_all_to_all_and_a_ring_on_each_interface_has_right_sums(
    fabric: Lab, tmp_path: Path
) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job(fabric, compute=[{"seconds": 0.2}])))
    training = WholeTraining(fabric, file, tmp_path / "training", iterations=2)
    training.wait()
    logs = training.logs()
    assert [log.ip for log in logs] == [host.ip for host in fabric.hosts]
    for log in logs:
        assert [done.ok for done in log.iterations] == [True, True]
        assert log.ended is not None
        # All rings at once send 4 times 2*11/12 of 96 kB through a host of four interfaces, which takes at least 0.7 s.
        assert all(len(done.phases_s) == 2 and done.phases_s[1] > 0.65 for done in log.iterations)


def test_a_job_that_is_not_for_this_lab_is_refused(fabric: Lab, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job(fabric, endpoints=[*(host.ip for host in fabric.hosts[1:]), "10.9.9.9"])))
    with pytest.raises(LabError, match=r"no host of this lab has 10\.9\.9\.9"):
        WholeTraining(fabric, file, tmp_path)


def test_when_a_rank_is_killed_the_others_end_and_what_one_says_is_told(fabric: Lab, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job(fabric)))
    training = WholeTraining(fabric, file, tmp_path / "training")
    wait_for(lambda: "mono" in text_of(tmp_path / "training" / "rank0.jsonl"), "all to be connected", 60)
    training.process(5).kill()
    with pytest.raises(LabError, match=r"rank 0 ended with status 1: recommender rank 0: training ended: .*rank"):
        training.wait()


def text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""
