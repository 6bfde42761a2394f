"""Classes on switches: a later class takes what the first leaves and keeps its floor; a change loses no packet."""

import json
import re
import subprocess
import sys
import time
from itertools import permutations
from pathlib import Path

from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import run
from mininet_topos.lab.running_fabric import install_static_routes, running_fabric
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.probing import Probing
from mininet_topos.probe.queues import FLOOR, all_drops, drops_since, sort_by_class
from mininet_topos.trainer.training import announcement
from signalbox.jobs.spec import Algorithm
from signalbox.mapping import word_in
from tests.support.lab.counters import ofctl
from tests.support.lab.pings import address
from tests.support.waiting import line, until

FIRST, LATER, LAST = 10, 18, 26
PORT, BYTES = 7001, 1_500_000
_SINK = f"""
import socket
with socket.create_server(("", {PORT})) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    while connection.recv(65536): pass
"""
_SOURCE = f"""
import socket, sys
connection = socket.socket()
connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(sys.argv[2]) << 2)
connection.connect((sys.argv[1], {PORT}))
while True: connection.sendall(bytes(10_000))
"""


def sent(lab: Lab) -> dict[str, int]:
    """Return the bytes that each queue of the cable from leaf1 to spine1 has sent."""
    (cable,) = (cable for cable in lab.links if (cable.a, cable.b) == ("leaf1", "spine1"))
    port = lab.topo.interface("leaf1", cable.a_port)
    found = json.loads(run("tc", "-s", "-j", "qdisc", "show", "dev", port))
    return {queue["handle"]: queue["bytes"] for queue in found if queue["kind"] == "bfifo"}


def stream(lab: Lab, number: int, dscp: int) -> None:
    """Let host ``number`` of leaf1 send to that of leaf2 until the lab ends, with a DSCP that it sets itself."""
    sink = lab.popen(f"h2_{number}", [sys.executable, "-c", _SINK], stdout=subprocess.PIPE, text=True)
    assert line(sink) == "ready\n"
    assert sink.stdout
    sink.stdout.close()
    lab.popen(f"h1_{number}", [sys.executable, "-c", _SOURCE, address(lab, f"h2_{number}"), str(dscp)])


def test_a_later_class_takes_what_the_first_leaves_and_keeps_its_floor(lab_prefix: str) -> None:
    with Lab(LeafSpine(2, 1, 2, prefix=lab_prefix), controller=None) as lab:
        install_static_routes(lab)
        sort_by_class(lab, (FIRST, LATER, LAST))
        drops = all_drops(lab)
        stream(lab, 2, LAST)
        until(lambda: sent(lab)["31:"] > BYTES / 4)
        assert sent(lab)["20:"] < BYTES / 100
        stream(lab, 1, 0)
        until(lambda: sent(lab)["20:"] > BYTES / 4)
        before = sent(lab)
        until(lambda: sent(lab)["20:"] > before["20:"] + BYTES)
        after = sent(lab)
        first, last = (after[queue] - before[queue] for queue in ("20:", "31:"))
        assert 0.7 * FLOOR < last / (first + last) < 2.5 * FLOOR
        assert after["30:"] == 0
        assert drops_since(drops, all_drops(lab)).probes == 0


def test_changes_of_the_class_lose_and_duplicate_no_packet(lab_prefix: str, tmp_path: Path) -> None:
    """The class of a job changes twice a second while its hosts send to each other."""
    program = ("tests.support.lab.marking_controller",)
    topo = LeafSpine(2, 2, 1, prefix=lab_prefix)
    settings = {"planning": {"interval_s": 3600}}
    with running_fabric(topo, tmp_path, settings=settings, program=program) as (lab, _, client):
        ips = [host.ip for host in lab.hosts]
        client.register_job(announcement("job", ips, Algorithm.RING_ALL_REDUCE, 10**6, 3600.0))
        until(lambda: word_in(client.get_job("job"), "state") == "pinned")
        with Probing(lab, lab.hosts, tmp_path / "raw") as probing:
            for pair in permutations(ips):
                probing.send((pair[0], pair[1]), 0.01, 500)
            seen = [0]
            until(lambda: changed(lab, seen) > 3)
            start, before = time.monotonic(), all_drops(lab)
            until(lambda: changed(lab, seen) > 13)
            end = time.monotonic()
            streams, late = probing.finish()
        drops = drops_since(before, all_drops(lab))
        outcomes = [stream.outcome(start, end) for stream in streams.values()]
        assert [outcome.duplicated for outcome in outcomes] == [0, 0]
        assert min(outcome.sent for outcome in outcomes) > 100
        assert sum(outcome.lost for outcome in outcomes) <= drops.data + drops.late + late
        assert drops.no_way == 0


def changed(lab: Lab, seen: list[int]) -> int:
    """Add the DSCP that leaf1 writes to ``seen`` if it has changed, and return the number of values."""
    found = {int(value) for value in re.findall(r"set_field:(\d+)->ip_dscp", ofctl(lab, "leaf1", "dump-flows"))}
    if len(found) == 1 and seen[-1] not in found:
        seen += found
    return len(seen)
