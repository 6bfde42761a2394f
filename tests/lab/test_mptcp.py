"""iperf3 over Multipath TCP: two subflows of one session on two spines, which ECMP may put on one.

Both subflows are between the same two addresses. The server also listens on another port, which its kernel announces to
the client. The tests check on every machine which links carry the bytes. They check rates only on machines where a
single path fills its link; on other machines the links are not the limit.

``test_connections`` is the shorter form, with connections of TCP."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mininet_topos.controller_process import Settings
from mininet_topos.joining.mptcp import KERNEL, LEAST_BYTES, carrying, missing, read_parts
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.running_fabric import running_fabric
from mininet_topos.leaf_spine import LeafSpine
from offline.scenarios.topologies import Host
from signalbox.client import Client
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobSpec
from tests.support.lab.connections import read_connections
from tests.support.lab.counters import sent_up
from tests.support.lab.fabric import routes
from tests.support.lab.needs import needs
from tests.support.lab.waits import wait_for

pytestmark = pytest.mark.long

FABRIC_MBPS, HOST_MBPS = 5.0, 20.0
RATES: Settings = {"fabric": {"link_bps": FABRIC_MBPS * 1e6, "host_link_bps": HOST_MBPS * 1e6}}
RECEIVE_BUFFER = "4096 131072 6291456"
"""Linux's default; the value of the lab's hosts fits one path (``FabricHost`` in ``mininet_topos/fabric_topo.py``)."""
LINKS_ARE_FULL = 0.85
"""Share of a link's rate, in payload, from which the link counts as full: headers and acknowledgements take 5 %."""
INTERVAL_S = 0.5
SETTLE_BYTES = 1_250_000
"""Bytes that both uplinks together send in one second when they are full."""
MEASURED_BYTES = 4_400_000
"""Bytes that both full uplinks send in 3.5 s: 2.5 s that count, and an interval of iperf3 before and after them."""
IPERF_PORT, SECOND_PORT = 5201, 9000
MPTCPIZE = ["mptcpize", "run"]


@pytest.mark.alone
def test_two_subflows_on_two_spines_are_as_fast_as_both_together(lab_prefix: str, tmp_path: Path) -> None:
    """The same subflows on one spine are slower."""
    if not KERNEL.exists():
        pytest.skip("the kernel has no Multipath TCP")
    needs(missing())
    size = LeafSpine(2, 2, 1, host_mbps=HOST_MBPS, fabric_mbps=FABRIC_MBPS, prefix=lab_prefix)
    with running_fabric(size, tmp_path, settings=RATES) as (lab, controller, client):
        prepare_hosts(lab)
        with transfer(lab, tmp_path / "plain.json", ["-P", "2"]) as plain:
            announce(client, lab, "plain", subflows=2)
            wait_for(lambda: len(received_much(lab)) == 2, "two connections that carry data")
            client.report_connections("plain", lab.hosts[1].ip, received_much(lab))
            wait_pinned(client, "plain", spines=2)
            plain.measure("each")
        client.deregister_job("plain")
        single = plain.per_stream_bps("each")

        token_file = tmp_path / "token"
        with (
            transfer(lab, tmp_path / "mptcp.json", [], MPTCPIZE) as mptcp,
            reporting(lab, "mptcp", controller.address, token_file),
        ):
            for spines in (2, 1):
                token_file.write_text(announce(client, lab, "mptcp", subflows=spines))
                wait_pinned(client, "mptcp", spines)
                before = sent_up(lab, "leaf1")
                mptcp.measure(f"spines: {spines}")
                carried = sorted(after - earlier for earlier, after in zip(before, sent_up(lab, "leaf1"), strict=True))
                assert (carried[0] > 0.3 * sum(carried)) is (spines == 2), carried
                client.deregister_job("mptcp")
    (two,), (one,) = (mptcp.per_stream_bps(f"spines: {spines}") for spines in (2, 1))
    ratios = two / sum(single), one / sum(single)
    figures = f"single paths {single}, subflows on two spines {two}, on one {one} bit/s; of the sum {ratios}"
    print(figures)  # noqa: T201
    if min(single) > LINKS_ARE_FULL * FABRIC_MBPS * 1e6:
        assert two == pytest.approx(sum(single), rel=0.1), figures
        assert one < 0.7 * sum(single), figures


def prepare_hosts(lab: Lab) -> None:
    """Allow one more subflow per session between the same addresses, and room for segments out of order."""
    for host in lab.hosts:
        in_host(lab, host, "sysctl", "-q", "net.mptcp.enabled=1", f"net.ipv4.tcp_rmem={RECEIVE_BUFFER}")
        in_host(lab, host, "ip", "mptcp", "limits", "set", "subflows", "1", "add_addr_accepted", "1")
    sink = lab.hosts[1]
    in_host(lab, sink, "ip", "mptcp", "endpoint", "add", sink.ip, "port", str(SECOND_PORT), "signal")


def wait_carried(lab: Lab, count: int) -> None:
    before = sum(sent_up(lab, "leaf1"))
    wait_for(lambda: sum(sent_up(lab, "leaf1")) >= before + count, f"{count} bytes", 120, 0.1)


def in_host(lab: Lab, host: Host, *argv: str) -> None:
    assert lab.popen(host.name, argv).wait(60) == 0


@dataclass
class Transfer:
    """Running iperf3 from the first host to the second.

    ``spans``: begin and end of each measurement in seconds after the start of iperf3, by name."""

    lab: Lab
    output: Path
    started: float
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)

    def measure(self, name: str) -> None:
        wait_carried(self.lab, SETTLE_BYTES)
        begin = time.monotonic() - self.started
        wait_carried(self.lab, MEASURED_BYTES)
        self.spans[name] = begin, time.monotonic() - self.started

    def per_stream_bps(self, name: str) -> list[int]:
        """Return the rates in bit/s at which the server received each stream in the span ``name``."""
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
    wait_for(lambda: listens(lab, sink), "iperf3's server")
    argv = [*iperf3, "-c", sink.ip, "-t", "60", "-C", "cubic", *options]  # some machines are set to BBR, which pauses
    client = lab.popen(source.name, argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield Transfer(lab, output, time.monotonic())
    client.terminate()
    client.wait(60)
    server.wait(60)


def listens(lab: Lab, host: Host) -> bool:
    argv = ["ss", "-N", lab.namespace(host), "-tlnH", f"sport = :{IPERF_PORT}"]
    return bool(subprocess.run(argv, capture_output=True, check=True).stdout)


def received_much(lab: Lab) -> frozenset[Connected]:
    """Return the second host's connections that carry data, without iperf3's control connection."""
    found = read_connections(lab.namespace(lab.hosts[1]))
    return frozenset(Connected(*one[:4]) for one in found if one.received >= LEAST_BYTES)


@contextmanager
def reporting(lab: Lab, job_id: str, api: str, token_file: Path) -> Iterator[None]:
    """Run the program that reports the connections of the first host, as an operator runs it."""
    source, sink = lab.hosts

    def subflows() -> frozenset[Connected]:
        return carrying(read_parts(lab.namespace(source)), source.ip, [sink.ip])

    wait_for(lambda: len(subflows()) == 2, "two subflows with data")
    module = [sys.executable, "-m", "mininet_topos.joining.mptcp"]
    options = ["--job", job_id, "--address", source.ip, "--api", api, "--lease-token-file", str(token_file)]
    token_file.touch(0o600)
    reporter = lab.popen(source.name, [*module, *options])
    yield
    reporter.terminate()
    reporter.wait(60)


def announce(client: Client, lab: Lab, job_id: str, subflows: int) -> str:
    spec: dict[str, Any] = {
        "job_id": job_id,
        "endpoints": [host.ip for host in lab.hosts],
        "transfers": [{"src": 0, "dst": 1, "bytes_per_iteration": 1_000_000}],
        "max_subflows": subflows,
        "striping": "common_queue",
        "reports_connections": True,
        "lease_s": 600,
    }
    return client.register_job(JobSpec.parse(spec)).lease_token


def wait_pinned(client: Client, job_id: str, spines: int) -> None:
    """Wait until switches have confirmed routes of both connections, over ``spines`` spines."""

    def pinned() -> bool:
        (route,) = routes(client, job_id)
        paths = {tuple(subflow.switches) for subflow in route.subflows}
        return len(paths) == spines and sum(len(subflow.connections) for subflow in route.subflows) == 2

    wait_for(pinned, f"both connections of {job_id} on {spines} spines")
