"""Jobs on emulated optical switches: wired side by side, repaired after a fault, kept when the controller restarts."""

import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from mininet_topos.controller_process import ControllerProcess
from mininet_topos.direct_connect import DirectConnect
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import run
from mininet_topos.lab.running_fabric import WholeTraining
from mininet_topos.probe.probing import Pair, Probing, Stream
from mininet_topos.probe.queues import (
    PROBE_TOS,
    AllDrops,
    all_drops,
    drops_since,
    large_socket_buffers,
    prioritise_probes,
)
from offline.scenarios.topologies import Host, circuits_config, optical
from signalbox.client import Client
from signalbox.jobs.spec import JobSpec
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.lab.counters import ofctl
from tests.support.lab.fabric import Fabric
from tests.support.lab.waits import wait_for

INTERFACES, MBPS = 3, 1.0
BEGIN_S = 60.0
PROBE_S = 0.05


@contextmanager
def fabric(prefix: str, folder: Path, servers: int, dark_s: float = 0.01) -> Iterator[Fabric]:
    topology = optical(servers, INTERFACES, MBPS * 1e6)
    settings = {
        "fabric": {"link_bps": MBPS * 1e6, "host_link_bps": INTERFACES * MBPS * 1e6},
        "discovery": {"edge_after_s": 1.0},
    }
    controller = ControllerProcess(folder, settings=settings, tables=circuits_config(topology, dark_s))
    topo = DirectConnect(servers, INTERFACES, MBPS, prefix=prefix)
    with large_socket_buffers(), Lab(topo, controller=controller.target) as lab, controller.running() as client:
        lab.wait_connected()
        prioritise_probes(lab)
        yield lab, controller, client


@pytest.fixture
def running(lab_prefix: str, tmp_path: Path) -> Iterator[Fabric]:
    with fabric(lab_prefix, tmp_path, 6) as found:
        yield found


def job(job_id: str, servers: Sequence[int]) -> dict[str, Any]:
    """Return the job ``first``, an all-reduce, or any other job, which offers two parallelizations.

    The planner chooses the second one, ``hybrid``: on these servers it takes less time than ``data``."""
    group = [{"name": "all", "ranks": list(range(len(servers)))}]

    def sends(algorithm: str, size: int, phase: int) -> dict[str, Any]:
        return {"algorithm": algorithm, "groups": ["all"], "bytes_per_iteration": size, "phase": phase}

    common = {"job_id": job_id, "endpoints": [f"10.0.{n}.1" for n in servers]}
    if job_id == "first":
        collectives = [sends("all_reduce", 80_000, 0)]
        return {**common, "groups": group, "collectives": collectives, "compute": [{"seconds": 0.3}]}
    hybrid = [sends("all_to_all", 8_000, 0), sends("all_reduce", 20_000, 1)]
    parallelizations = [
        {"name": "data", "groups": group, "collectives": [sends("all_reduce", 120_000, 0)]},
        {"name": "hybrid", "groups": group, "collectives": hybrid, "compute": [{"seconds": 0.04}]},
    ]
    return {**common, "parallelizations": parallelizations}


def train(lab: Lab, api: str, folder: Path, job_id: str, servers: range) -> WholeTraining:
    file = folder / f"{job_id}.json"
    file.write_text(json.dumps(job(job_id, servers)))
    training = WholeTraining(lab, file, folder / job_id, api=api)
    wait_for(lambda: iterations(folder, job_id) >= 1, f"{job_id} to train", BEGIN_S)
    return training


def iterations(folder: Path, job_id: str) -> int:
    """Return the number of iterations of rank 0, and assert that no result was wrong."""
    log = folder / job_id / "rank0.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    assert all(line["ok"] for line in lines if "ok" in line)
    return sum("ok" in line for line in lines)


def goes_on(folder: Path, job_id: str) -> Callable[[], bool]:
    done = iterations(folder, job_id)
    return lambda: iterations(folder, job_id) >= done + 2


def sent_datagrams(lab: Lab, host: Host) -> int:
    """Return how many datagrams of UDP the host has sent, which are its probes."""
    text = run("ip", "netns", "exec", lab.namespace(host), "cat", "/proc/net/snmp")
    names, counts = re.findall(r"^Udp: (.*)$", text, re.MULTILINE)
    return int(dict(zip(names.split(), counts.split(), strict=True))["OutDatagrams"])


def circuits(client: Client, job_id: str) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    found = client.get_job(job_id).wiring.circuits
    return {((each.src.dpid, each.src.port), (each.dst.dpid, each.dst.port)) for each in found}


def made(client: Client) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    links = [link for link in client.get_fabric().links if link.one_way]
    return {((link.src.dpid, link.src.port), (link.dst.dpid, link.dst.port)) for link in links}


def test_jobs_are_wired_beside_each_other_mended_and_kept_over_a_restart(running: Fabric, tmp_path: Path) -> None:
    lab, controller, client = running
    first = train(lab, controller.address, tmp_path, "first", range(1, 5))
    found = client.get_job("first")
    assert (found.state, found.wiring.unwired) == (pb.JOB_STATE_PINNED, "")
    assert len(found.wiring.runs.groups) == 3  # the group of all ranks, and its rings with steps 1 and 3

    # Another job is wired while the first one trains, and none of its packets is lost.
    hosts, drops = lab.hosts[:4], all_drops(lab)
    with Probing(lab, hosts, tmp_path / "probes", PROBE_TOS) as probes:
        for pair in permutations([host.ip for host in hosts], 2):
            probes.send(pair, PROBE_S)
        wait_for(lambda: all(sent_datagrams(lab, host) > 50 for host in hosts), "probes of all pairs", poll_s=0.2)
        second = train(lab, controller.address, tmp_path, "second", range(5, 7))
        streams, _ = probes.finish()
    assert sum(len(stream.sent) for stream in streams.values()) > 500
    assert lost(streams) <= excused(drops, lab)
    assert client.get_job("second").wiring.parallelization == "hybrid"
    assert circuits(client, "first") | circuits(client, "second") == made(client)
    assert not client.get_status().alarms

    # A fibre pair is cut: iterations continue, and other circuits are made.
    before = circuits(client, "first")
    lab.cut("server2", "optical2")
    wait_for(lambda: circuits(client, "first") != before, "other circuits")
    wait_for(goes_on(tmp_path, "first"), "iterations after the cut")
    wait_for(lambda: circuits(client, "first") <= made(client), "the other circuits to be made")
    assert not any((2, 3) in each for each in circuits(client, "first"))
    assert [(alarm.kind, alarm.subject) for alarm in client.get_status().alarms] == [
        (pb.ALARM_KIND_INTERFACE_DARK, f"{lab.bridge('server2')}:3")
    ]
    lab.plug("server2", "optical2")
    wait_for(lambda: not client.get_status().alarms, "the alarm to end")

    # The controller is killed: switches keep forwarding, and the next controller finds everything unchanged.
    controller.kill()
    wait_for(goes_on(tmp_path, "first"), "iterations without a controller")
    held = optical_rules(lab)
    controller.start()
    wait_for(lambda: controller.ready(client), "the controller")
    wait_for(lambda: {each.state for each in client.list_jobs()} == {pb.JOB_STATE_PINNED}, "pins")
    assert optical_rules(lab) == held
    wait_for(goes_on(tmp_path, "second"), "iterations of both")
    for training in (first, second):
        training.stop()
        training.wait()
    wait_for(lambda: not client.list_jobs(), "both jobs to be released")


def optical_rules(lab: Lab) -> dict[str, set[str]]:
    found = {}
    for switch in lab.switches:
        if switch.name.startswith("optical"):
            lines = ofctl(lab, switch.name, "dump-flows").splitlines()
            found[switch.name] = {line.split("priority=")[1] for line in lines if "priority=" in line}
    return found


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_controller_killed_at_any_instant_of_a_change_is_followed_by_one_that_completes_it(
    lab_prefix: str, tmp_path: Path
) -> None:
    """Circuits stay dark for 0.4 s during a change, so that some kills happen while they are dark."""
    with fabric(lab_prefix, tmp_path, 8, dark_s=0.4) as (lab, controller, client):
        train(lab, controller.address, tmp_path, "first", range(1, 5))
        hosts, drops = lab.hosts[:4], all_drops(lab)
        with Probing(lab, hosts, tmp_path / "probes", PROBE_TOS) as probes:
            for pair in permutations([host.ip for host in hosts], 2):
                probes.send(pair, PROBE_S)
            for number in range(20):
                servers = [*range(5, 9)]
                random.Random(number).shuffle(servers)
                client.register_job(JobSpec.parse(job("second", servers)))
                time.sleep(0.3 + 0.12 * number)
                controller.kill()
                controller.start()
                wait_for(lambda: controller.ready(client), "the controller")
                wait_for(lambda: client.get_job("second").state == pb.JOB_STATE_PINNED, "its pins")
                both = circuits(client, "first") | circuits(client, "second")
                wait_for(lambda both=both: both <= made(client), "all circuits", 60)  # type: ignore[misc]
                client.deregister_job("second", force=True)
            streams, _ = probes.finish()
        assert lost(streams) <= excused(drops, lab)


def lost(streams: Mapping[Pair, Stream]) -> int:
    return sum(len(each.sent) - len({number for number, _ in each.arrivals}) for each in streams.values())


def excused(before: AllDrops, lab: Lab) -> int:
    """Return the number of packets that full queues have dropped since ``before``.

    Up to this number of probes may be missing: a queue that drops a packet may drop a probe as well, uncounted."""
    drops = drops_since(before, all_drops(lab))
    return drops.data + drops.probes + drops.late
