"""Benchmark ``drains``: a spine is drained, pulled out and used again while three jobs train, without loss.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks drains [--times N] [--out DIR]

The fabric and its three rings are those of the demo. Every second drain has a restart of the controller. All pairs are
probed every 10 ms; probing every millisecond would take a tenth of a link. From "safe to pull" until the spine is
deleted, every packet on its cables is examined. The result is a table and ``drains.json``.

The exit status is 1 in these cases:

- A packet was lost that no queue dropped.
- A packet of a host passed a spine that was safe to pull.
- An alarm was raised.
"""

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.live.failures import (
    RAW,
    SETTLE_TIMEOUT_S,
    WIDE_S,
    Scene,
    demo_fabric,
    finish,
    pick_spine,
    scene_of,
    start,
)
from benchmarks.live.outages_report import means
from benchmarks.measures import report
from mininet_topos.demo.phases import ELEMENTS, JOBS
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import settled
from mininet_topos.trainer.log import RankLog, read_rank_logs
from signalbox.client import Unreachable
from signalbox.mapping import word_in

UNDISTURBED_S = 30.0
QUIET_S = 10.0
"""Seconds of measurement after each change, enough for some iterations."""
ETH_ALL, ETH_LLDP = 3, 0x88CC


@dataclass(frozen=True, slots=True)
class Drained:
    spine: str
    restarted: bool
    safe_s: float
    """Seconds from the request to drain until the spine was safe to pull."""
    host_packets: int
    """Packets of hosts on the spine's cables while it was safe to pull."""
    from_s: float
    """Monotonic seconds of the request to drain."""
    pulled_s: float
    """Monotonic seconds at which the spine was pulled."""
    until_s: float
    """Monotonic seconds at which the measurement after the pull ended."""


def drain_and_pull(scene: Scene, turn: int, restart: bool) -> Drained:
    """Drain a spine that pinned flows use, pull it, and use it again.

    ``restart``: whether to kill and restart the controller as soon as it has accepted the request."""
    spine, up, down, roles = pick_spine(scene, turn)
    bridge, of_spine = scene.lab.bridge(spine), sum(cable.b == spine for cable in scene.lab.links)
    with ExitStack() as stack:
        stack.enter_context(scene.closely((up, down)))
        packets: list[Iterator[int]] = []

        def drain() -> None:
            scene.client.drain([bridge])
            if restart:
                scene.lab.reconnect_soon()  # also switches that were re-created
                scene.controller.kill()
                scene.controller.start()

        def safe() -> bool:
            if not packets and _state(scene, bridge) == "safe":
                packets.append(stack.enter_context(_host_packets(scene, spine)))
            return bool(packets) and scene.all_pinned()

        began = time.monotonic()
        what = "drained across a restart" if restart else "drained"
        scene.phase(what, spine, roles, drain, safe)
        safe_s = scene.events[-1].dealt_with - scene.events[-1].start
        found = next(packets[0])
        left, pulled = scene.links - 2 * of_spine, time.monotonic()
        scene.phase("pulled", spine, roles, lambda: scene.lab.stop_switch(spine), lambda: settled(scene.client, left))
        ended = time.monotonic()
        _no_alarms(scene)

        def back() -> None:
            start(scene, spine)
            scene.client.undrain([bridge])

        scene.phase("used again", spine, roles, back, lambda: scene.in_order(scene.links))
    return Drained(spine, restart, safe_s, found, began, pulled, ended)


def _state(scene: Scene, bridge: str) -> str:
    """Return the state of the switch's drain; empty while the controller does not answer."""
    with suppress(Unreachable):
        return next(word_in(part, "state") for part in scene.client.get_status().drains if part.name == bridge)
    return ""


def _no_alarms(scene: Scene) -> None:
    alarms = [alarm.text for alarm in scene.client.get_status().alarms]
    if alarms:
        raise RuntimeError(f"planned work raised an alarm: {alarms[0]}")


@contextmanager
def _host_packets(scene: Scene, spine: str) -> Iterator[Iterator[int]]:
    """Yield an iterator that counts the packets on the spine's cables, without LLDP: each item is the number so far."""
    with ExitStack() as stack:
        sockets = []
        for cable in scene.lab.links:
            if cable.b == spine:
                # Protocol 0 until the socket is bound; otherwise the socket would receive from all interfaces.
                port = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
                port.setblocking(False)
                port.bind((scene.lab.topo.interface(cable.b, cable.b_port), ETH_ALL))
                sockets.append(port)
        yield _counted(sockets)


def _counted(sockets: Sequence[socket.socket]) -> Iterator[int]:
    total = 0
    while True:
        for port in sockets:
            while True:
                try:
                    frame = port.recv(64)
                except BlockingIOError:
                    break
                total += int.from_bytes(frame[12:14]) != ETH_LLDP
        yield total


def slowest(log: RankLog, from_s: float, until_s: float) -> float:
    """Return the largest mean of consecutive iterations (``means``) in the period; 0 for too few iterations."""
    took = [one.duration_s for one in log.iterations if one.start >= from_s and one.end <= until_s]
    return max(means(took), default=0.0)


def build(
    found: Mapping[str, Any], drains: Sequence[Drained], quiet: tuple[float, float], logs: Sequence[RankLog]
) -> Any:
    """Return the content of ``drains.json``: the content of ``failures.json``, and a row for each drain.

    Ratios are the ``slowest`` of a period / the ``slowest`` of the ``quiet`` period, of the worst job."""
    usual = {log.job_id: slowest(log, *quiet) for log in logs}
    rows = []
    for drain in drains:
        times = (drain.from_s, drain.pulled_s), (drain.pulled_s, drain.until_s), (drain.from_s, drain.until_s)
        ratios = [max(slowest(log, *between) / usual[log.job_id] for log in logs) for between in times]
        rows.append(
            {
                "spine": drain.spine,
                "restarted": drain.restarted,
                "safe_s": round(drain.safe_s, 2),
                "host_packets": drain.host_packets,
                "drained_ratio": round(ratios[0], 4),
                "pulled_ratio": round(ratios[1], 4),
                "iterations_ratio": round(ratios[2], 4),
            }
        )
    return {**found, "drains": rows}


def failed(found: Mapping[str, Any]) -> bool:
    """Return whether a packet was lost that no queue dropped, or passed a spine that was safe to pull."""
    lost = any(
        sum(role["lost"] for role in event["roles"].values()) > sum(event["drops"].values())
        for event in found["events"]
        if event["what"] != "used again"
    )
    return lost or any(row["host_packets"] for row in found["drains"])


def main(
    times: Annotated[int, typer.Option(min=1, help="Number of drains, each with and without a restart.")] = 2,
    out: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("out/bench/drains"),
) -> None:
    """Drain a spine under training, pull it, and use it again."""
    with (
        demo_fabric("dr", out) as (topo, folder),
        scene_of(topo, folder, ELEMENTS, JOBS, WIDE_S, QUIET_S) as scene,
    ):
        found = measured(scene, times, UNDISTURBED_S)
    report(found, out / "drains.json", {"Drains": found["drains"], "Events": found["summary"]})
    if failed(found):
        raise typer.Exit(1)


def measured(scene: Scene, times: int, undisturbed_s: float) -> Any:
    began = time.monotonic()
    time.sleep(undisturbed_s)
    quiet = began, time.monotonic()
    drains = []
    for turn in range(times):
        for restart in (False, True):
            drains.append(drain_and_pull(scene, turn, restart))
            wait_for(lambda: scene.in_order(scene.links), "all links", SETTLE_TIMEOUT_S)
    found = finish(scene)
    return build(found, drains, quiet, read_rank_logs(scene.controller.folder / RAW))
