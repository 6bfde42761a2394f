"""For how long Open vSwitch forwards by its flow cache after it has confirmed a barrier.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks flow-cache [--times N] [--rules N]

One probed flow, no controller: ``ovs-ofctl mod-flows``, which ends with a barrier, moves it between a leaf's two
uplinks; packets are captured at the old one. Out: a line with the time of the last packet there. Until then old rules
may only be deleted if other rules forward the packets that are still in flight.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import run
from mininet_topos.lab.static_routes import install_static_routes
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.prober import MIN_FRAME_BYTES
from mininet_topos.probe.probing import Probing
from mininet_topos.probe.queues import large_socket_buffers

INTERVAL_S = 0.001
PAUSE_S = 0.6
"""Between moves: longer than the half second after which Open vSwitch revalidates its cache anyway."""
ETH_P_ALL = 3
PACKET_OUTGOING = 4
"""packet(7): packets that the interface sends."""
OFCTL = ("ovs-ofctl", "-O", "OpenFlow13")


@contextmanager
def departures(interface: str) -> Iterator[list[float]]:
    """When frames as small as probes leave through the interface, in a list that grows."""
    times: list[float] = []
    over = threading.Event()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as sock:
        sock.bind((interface, 0))
        sock.settimeout(0.1)

        def listen() -> None:
            while not over.is_set():
                try:
                    frame, address = sock.recvfrom(2048)
                except TimeoutError:
                    continue
                if address[2] == PACKET_OUTGOING and len(frame) == MIN_FRAME_BYTES:
                    times.append(time.monotonic())

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield times
        finally:
            over.set()
            thread.join()


def stragglers_ms(lab: Lab, raw: Path, times: int) -> list[float]:
    """Per move, the last packet on the old uplink after the barrier's reply; negative when it was before."""
    bridge = lab.bridge("leaf1")
    source, target = (next(host.ip for host in lab.hosts if host.name == name) for name in ("h1_1", "h2_1"))
    uplinks = [cable.a_port for cable in lab.links if cable.a == "leaf1"]
    with (
        Probing(lab, lab.hosts, raw) as probing,
        departures(lab.topo.interface("leaf1", uplinks[0])) as first,
        departures(lab.topo.interface("leaf1", uplinks[1])) as second,
    ):
        probing.send((source, target), INTERVAL_S)
        time.sleep(PAUSE_S)
        late = []
        for turn in range(times):
            new, old = (uplinks[1], first) if turn % 2 == 0 else (uplinks[0], second)
            run(*OFCTL, "mod-flows", bridge, f"ip,nw_dst={target},actions=output:{new}")
            confirmed = time.monotonic()
            time.sleep(PAUSE_S)
            late.append(1e3 * (old[-1] - confirmed))
        return late


def main(
    times: Annotated[int, typer.Option(min=2, help="moves")] = 60,
    rules: Annotated[int, typer.Option(min=0, help="other rules in the switch's tables")] = 0,
) -> None:
    """Measure how long the flow cache forwards by old rules after a barrier."""
    topo = LeafSpine(2, 2, 1, prefix="fc")
    with large_socket_buffers(), tempfile.TemporaryDirectory() as raw, Lab(topo, None) as lab:
        install_static_routes(lab)
        bridge = lab.bridge("leaf1")
        fillers = "\n".join(
            f"table=9,ip,nw_src=10.{i >> 16}.{i >> 8 & 255}.{i & 255},actions=drop" for i in range(rules)
        )
        subprocess.run([*OFCTL, "add-flows", bridge, "-"], input=fillers, text=True, check=True)
        late = stragglers_ms(lab, Path(raw), times)
    typer.echo(
        f"{times} moves beside {rules} rules: the last packet on the old path left {median(late):.1f} ms after the "
        f"barrier's reply (median), {max(late):.1f} ms at worst; negative is before it"
    )
