"""Reporter of the TCP connections in the Multipath TCP sessions of a job (docs/how-to/use-mptcp.md).

    python -m mininet_topos.joining.mptcp --job JOB --address 10.0.1.1 --lease-token-file FILE

Run it on the host with that address. It reads the kernel's sockets from the output of ``ss``, and calls
``ReportConnections`` of the controller every ``PERIOD_S`` seconds, until it is stopped. The job's lease token is in the
file, which is read each time, or in the environment variable SIGNALBOX_LEASE_TOKEN.
"""

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Container, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from signalbox.client import DEFAULT_ADDRESS, Client, Unreachable
from signalbox.credentials import Credentials
from signalbox.errors import NotFound
from signalbox.jobs.reports import Connected

TOKEN_VARIABLE = "SIGNALBOX_LEASE_TOKEN"

PERIOD_S = 1.0
LEAST_BYTES = 100_000
INSIGNIFICANT = 0.01
"""Share of the bytes of the busiest session.

A session below this share, or below ``LEAST_BYTES``, carries only control data, as iperf3's control session does."""

CONNECTION_OF = re.compile(r"\btoken:\w+\(id:\d+\)/(\w+)\(id:\d+\)")
OWN_TOKEN = re.compile(r"\btoken:(\w+)")
CARRIED = re.compile(r"\bbytes_(?:acked|received):(\d+)")


class Part(NamedTuple):
    """TCP connection of a session. ``carried``: payload bytes in both directions.

    They are ``tcpi_bytes_acked`` and ``tcpi_bytes_received`` of tcp(7)."""

    session: str
    connection: Connected
    carried: int


KERNEL = Path("/proc/sys/net/mptcp/enabled")
"""File that exists when the kernel has Multipath TCP."""


def missing() -> str | None:
    """Return the reason why iperf3 cannot run over Multipath TCP here, or None when it can."""
    if not KERNEL.exists():
        return "the kernel has no Multipath TCP"
    programs = [program for program in ("iperf3", "mptcpize") if not shutil.which(program)]
    return f"there is no {' and no '.join(programs)}; run scripts/bootstrap.sh --libraries" if programs else None


def read_parts(namespace: str | None = None) -> list[Part]:
    """Return the connections of all open sessions in a named network namespace, by default that of this process.

    Raises ``OSError`` and ``CalledProcessError``."""
    where = ["-N", namespace] if namespace else []
    argv = ["ss", *where, "-tMinH", "state", "established"]
    return parsed(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def parsed(listed: str) -> list[Part]:
    """Return the connections in the output of ``ss -tMinH state established``.

    Each connection has a line of addresses, then an indented line of counters. Connections can stay for a minute after
    their program has ended (``net.mptcp.close_timeout``). Their session is no longer listed. They are left out, because
    in a report they would count as connections of the next session."""
    sessions: set[str] = set()
    parts: list[Part] = []
    kind, ends = "", Connected("", 0, "", 0)
    for line in listed.splitlines():
        if not line[:1].isspace():
            kind, _, _, local, peer = line.split()[:5]
            ends = Connected(*address_of(local), *address_of(peer))
        elif kind == "mptcp":
            sessions.update(OWN_TOKEN.findall(line))
        elif session := CONNECTION_OF.search(line):
            parts.append(Part(session[1], ends, sum(map(int, CARRIED.findall(line)))))
    return [part for part in parts if part.session in sessions]


def address_of(text: str) -> tuple[str, int]:
    """Return address and port of a text such as ``10.0.1.1:5000`` or ``10.0.1.1%eth0:5000``.

    A socket for both versions of IP is written ``[::ffff:10.0.1.1]:5000``."""
    ip, _, port = text.rpartition(":")
    return ip.strip("[]").removeprefix("::ffff:").partition("%")[0], int(port)


def carrying(parts: Iterable[Part], address: str, peers: Container[str]) -> frozenset[Connected]:
    """Return the connections from ``address`` to ``peers`` of all sessions that carry data."""
    own = [part for part in parts if part.connection.src_ip == address and part.connection.dst_ip in peers]
    total: Counter[str] = Counter()
    for part in own:
        total[part.session] += part.carried
    least = max(LEAST_BYTES, INSIGNIFICANT * max(total.values(), default=0))
    return frozenset(part.connection for part in own if total[part.session] >= least)


def token_in(file: Path | None) -> str:
    """Return the job's lease token, empty while there is none; from the environment when ``file`` is None."""
    return (file.read_text() if file else os.environ.get(TOKEN_VARIABLE, "")).strip()


def run(
    job: Annotated[str, typer.Option(help="Id of a job that was announced with reports_connections.")],
    address: Annotated[str, typer.Option(help="IPv4 address of this host in the job.")],
    api: Annotated[str, typer.Option(help="Address of the API, HOST:PORT or unix:PATH.")] = DEFAULT_ADDRESS,
    lease_token_file: Annotated[Path | None, typer.Option(help="File with the job's lease token.")] = None,
) -> None:
    """Report the connections of this host's Multipath TCP sessions until it is stopped."""
    if lease_token_file is None and TOKEN_VARIABLE not in os.environ:
        raise typer.BadParameter(f"give --lease-token-file, or set {TOKEN_VARIABLE}")
    with Client(api, credentials=Credentials.of_environment()) as client:
        while True:
            with suppress(NotFound, Unreachable):  # the job is not registered yet, or the controller is starting
                spec = client.get_job(job).spec
                peers = {*spec.endpoints, *(ip for rail in spec.rails for ip in rail.endpoints)}
                if token := token_in(lease_token_file):
                    client.report_connections(job, address, carrying(read_parts(), address, peers), token)
            time.sleep(PERIOD_S)


if __name__ == "__main__":
    typer.run(run)
