"""Queues of classes: TCP of a later class takes what the first class leaves, and keeps its floor."""

import json
import subprocess
import sys

from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import run
from mininet_topos.lab.running_fabric import install_static_routes
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.queues import FLOOR, all_drops, drops_since, sort_by_class
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
