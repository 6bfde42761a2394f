"""Tells the controller which TCP connections the Multipath TCP sessions of a job consist of (docs/how-to/use-mptcp.md).

    python -m mininet_topos.joining.mptcp --job JOB --address 10.0.1.1

Run it on the host with that address; it reads the kernel's sockets every ``PERIOD_S`` and reports what has changed,
until it is stopped. In: the output of ``ss``. Out: ``ReportConnections``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from controller.api.client import DEFAULT_ADDRESS, Client
from controller.errors import NotFound
from controller.jobs.messages import Connected
from mininet_topos.joining.connections import address_of

PERIOD_S = 1.0
INSIGNIFICANT = 0.01
"""Of the bytes of the busiest session: what a program only controls itself with, as iperf3 does."""

SESSION = re.compile(r"\btoken:\w+\(id:\d+\)/(\w+)\(id:\d+\)")
CARRIED = re.compile(r"\bbytes_(?:acked|received):(\d+)")


class Part(NamedTuple):
    """A TCP connection of a session. ``carried``: payload bytes both ways (tcp(7), ``tcpi_bytes_acked`` and
    ``tcpi_bytes_received``)."""

    session: str
    connection: Connected
    carried: int


def missing() -> str | None:
    """Why iperf3 cannot run over Multipath TCP here, None when it can."""
    if not Path("/proc/sys/net/mptcp/enabled").exists():
        return "the kernel has no Multipath TCP"
    programs = [program for program in ("iperf3", "mptcpize") if not shutil.which(program)]
    return f"there is no {' and no '.join(programs)}; run scripts/bootstrap.sh --libraries" if programs else None


def read_parts(namespace: str | None = None) -> list[Part]:
    """Of all sessions in a named network namespace, without one in that of this process. Raises ``OSError`` and
    ``CalledProcessError``."""
    where = ["-N", namespace] if namespace else []
    argv = ["ss", *where, "-tinH", "state", "established"]
    return list(parsed(subprocess.run(argv, capture_output=True, text=True, check=True).stdout))


def parsed(listed: str) -> Iterator[Part]:
    """From the output of ``ss -tinH state established``: a line of addresses, then an indented one of counters."""
    ends: Connected | None = None
    for line in listed.splitlines():
        if not line[:1].isspace():
            local, peer = line.split()[2:4]
            ends = Connected(*address_of(local), *address_of(peer))
        elif ends and (session := SESSION.search(line)):
            yield Part(session[1], ends, sum(map(int, CARRIED.findall(line))))


def carrying(parts: Iterable[Part], address: str) -> frozenset[Connected]:
    """The connections from ``address`` of all sessions that carry data."""
    own = [part for part in parts if part.connection.src_ip == address]
    total: Counter[str] = Counter()
    for part in own:
        total[part.session] += part.carried
    least = INSIGNIFICANT * max(total.values(), default=0)
    return frozenset(part.connection for part in own if total[part.session] > least)


def run(
    job: Annotated[str, typer.Option(help="job id; it was announced with reports_connections")],
    address: Annotated[str, typer.Option(help="IPv4 address of this host in the job")],
    api: Annotated[str, typer.Option(help="the controller's gRPC address, HOST:PORT or unix:PATH")] = DEFAULT_ADDRESS,
) -> None:
    """Report the connections of this host's Multipath TCP sessions until it is stopped."""
    told: frozenset[Connected] | None = None
    with Client(api) as client:
        while True:
            found = carrying(read_parts(), address)
            if found != told:
                with suppress(NotFound):  # the job is not registered yet
                    client.report_connections(job, address, found)
                    told = found
            time.sleep(PERIOD_S)


if __name__ == "__main__":
    typer.run(run)
