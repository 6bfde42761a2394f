"""iperf3 over Multipath TCP: two subflows of one session on two spines, which ECMP may put on one.

Both subflows are between the same two addresses. The server also listens on another port, which its kernel signals.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controller.api.client import Client
from controller.jobs.messages import Connected
from controller.jobs.spec import JobSpec
from controller.scenarios.topologies import Host
from mininet_topos.controller_process import Settings
from mininet_topos.joining.connections import read_connections
from mininet_topos.joining.mptcp import carrying, missing, read_parts
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import running_fabric
from mininet_topos.leaf_spine import LeafSpine

pytestmark = pytest.mark.lab

FABRIC_MBPS, HOST_MBPS = 5.0, 15.0
RATES: Settings = {"fabric": {"link_bps": FABRIC_MBPS * 1e6, "host_link_bps": HOST_MBPS * 1e6}}
INTERVAL_S = 0.5
SETTLE_S = 1.5
MEASURED_S = 3.0
ENOUGH_BYTES = 100_000
IPERF_PORT, SECOND_PORT = 5201, 9000
MPTCPIZE = ["mptcpize", "run"]


def test_two_subflows_on_two_spines_are_as_fast_as_both_together(lab_prefix: str, tmp_path: Path) -> None:
    if missing():
        pytest.skip(str(missing()))
    size = LeafSpine(2, 2, 1, host_mbps=HOST_MBPS, fabric_mbps=FABRIC_MBPS, prefix=lab_prefix)
    with running_fabric(size, tmp_path, settings=RATES) as (lab, _, client):
        source, sink = lab.hosts
        use_multipath(lab, source, sink)

        with transfer(lab, tmp_path / "plain.json", ["-P", "2"]) as plain:
            pinned(client, lab, "plain", 2, lambda: plain_connections(lab, sink), sink.ip)
            plain.measure("each")
        client.deregister_job("plain")
        single = plain.per_stream_bps("each")

        with transfer(lab, tmp_path / "mptcp.json", [], MPTCPIZE) as mptcp:
            own = lambda: carrying(read_parts(lab.namespace(source)), source.ip)  # noqa: E731
            pinned(client, lab, "both", 2, own, source.ip)
            mptcp.measure("both")
            client.deregister_job("both")
            pinned(client, lab, "one", 1, own, source.ip)
            mptcp.measure("one")
    one, both = sum(mptcp.per_stream_bps("one")), sum(mptcp.per_stream_bps("both"))
    figures = f"single paths {single}, both subflows on one spine {one}, on two {both} bit/s"
    print(figures)  # noqa: T201
    assert both == pytest.approx(sum(single), rel=0.1), figures
    assert one < 0.7 * both, figures


def use_multipath(lab: Lab, source: Host, sink: Host) -> None:
    """One more subflow per session, between the same addresses."""
    for host in (source, sink):
        in_host(lab, host, "sysctl", "-q", "net.mptcp.enabled=1")
        in_host(lab, host, "ip", "mptcp", "limits", "set", "subflows", "1", "add_addr_accepted", "1")
    in_host(lab, sink, "ip", "mptcp", "endpoint", "add", sink.ip, "port", str(SECOND_PORT), "signal")


def in_host(lab: Lab, host: Host, *argv: str) -> None:
    assert lab.popen(host.name, argv).wait(10) == 0


@dataclass
class Transfer:
    """A running iperf3 from the first host to the second. ``spans``: seconds after its start, by name."""

    output: Path
    started: float
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)

    def measure(self, name: str) -> None:
        time.sleep(SETTLE_S)
        begin = time.monotonic() - self.started
        time.sleep(MEASURED_S + 2 * INTERVAL_S)
        self.spans[name] = begin, time.monotonic() - self.started

    def per_stream_bps(self, name: str) -> list[int]:
        """What the server received on each connection, as programs see it."""
        begin, end = self.spans[name]
        rates: dict[int, list[float]] = {}
        for interval in json.loads(self.output.read_text())["intervals"]:
            for stream in interval["streams"]:
                if begin < stream["start"] and stream["end"] < end:
                    rates.setdefault(stream["socket"], []).append(stream["bits_per_second"])
        return [round(sum(of_stream) / len(of_stream)) for of_stream in rates.values()]


@contextmanager
def transfer(lab: Lab, output: Path, options: list[str], wrapper: list[str] | None = None) -> Iterator[Transfer]:
    source, sink = lab.hosts
    iperf3 = [*(wrapper or []), "iperf3"]
    with output.open("w") as file:
        server = lab.popen(sink.name, [*iperf3, "-s", "-1", "-J", "-i", str(INTERVAL_S)], stdout=file)
    wait_for(lambda: listens(lab, sink), "iperf3's server", 10)
    argv = [*iperf3, "-c", sink.ip, "-t", "60", "-C", "cubic", *options]  # some machines are set to BBR, which pauses
    client = lab.popen(source.name, argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield Transfer(output, time.monotonic())
    client.terminate()
    client.wait(10)
    server.wait(10)


def listens(lab: Lab, host: Host) -> bool:
    argv = ["ss", "-N", lab.namespace(host), "-tlnH", f"sport = :{IPERF_PORT}"]
    return bool(subprocess.run(argv, capture_output=True, check=True).stdout)


def plain_connections(lab: Lab, host: Host) -> frozenset[Connected]:
    """Those on which a host has received much."""
    found = read_connections(lab.namespace(host))
    return frozenset(Connected(*one[:4]) for one in found if one.received > ENOUGH_BYTES)


def pinned(
    client: Client, lab: Lab, job_id: str, subflows: int, connections: Callable[[], frozenset[Connected]], address: str
) -> None:
    """Announces what goes on as a job, and reports its two connections. Each subflow has a spine of its own."""
    source, sink = lab.hosts
    spec: dict[str, Any] = {
        "job_id": job_id,
        "endpoints": [source.ip, sink.ip],
        "transfers": [{"src": 0, "dst": 1, "bytes_per_iteration": 1_000_000}],
        "max_subflows": subflows,
        "dealing": "common_queue",
        "reports_connections": True,
        "lease_s": 600,
    }
    client.register_job(JobSpec.parse(spec))
    wait_for(lambda: len(connections()) == 2, "two connections that carry data", 10)
    client.report_connections(job_id, address, connections())

    def apart() -> bool:
        (route,) = next(iter(client.watch_routes(job_id))).routes
        return len({tuple(piece.switches) for piece in route.subflows}) == subflows == len(route.subflows)

    wait_for(apart, f"{subflows} subflows of {job_id} on as many spines", 10)
