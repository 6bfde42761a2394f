"""Unannounced traffic: one TCP connection that sends as fast as it can, for some seconds.

Runs inside hosts' namespaces. The sink listens on any free port and publishes it in a directory that both share:

    python -m mininet_topos.demo.traffic sink --bind 10.0.2.4 --rendezvous DIR --name to-leaf2
    python -m mininet_topos.demo.traffic source --rendezvous DIR --name to-leaf2 --seconds 35

The source ends after its time, the sink when the connection closes; each prints ``{"bytes", "seconds"}``.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from mininet_topos.trainer.sockets import find, prepare_sender, publish

BLOCK = bytes(16 * 1024)
CONNECT_TIMEOUT_S = 30.0

app = typer.Typer(add_completion=False)

Directory = Annotated[Path, typer.Option("--rendezvous", help="directory that source and sink share")]
Name = Annotated[str, typer.Option(help="the sink's name in that directory")]


def send(connection: socket.socket, seconds: float) -> int:
    """Bytes handed to the kernel in ``seconds``, or until the sink closes the connection."""
    deadline = time.monotonic() + seconds
    sent = 0
    with suppress(TimeoutError, ConnectionError):
        while (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            sent += connection.send(BLOCK)
    return sent


def receive(connection: socket.socket) -> int:
    """Bytes received until the source closes the connection."""
    received = 0
    buffer = bytearray(len(BLOCK))
    with suppress(ConnectionError):
        while got := connection.recv_into(buffer, flags=socket.MSG_WAITALL):  # one wake-up per block, not per packet
            received += got
    return received


@app.command()
def source(directory: Directory, name: Name, seconds: Annotated[float, typer.Option(min=0)]) -> None:
    """Send to the sink for some seconds."""
    address = find(directory, name, CONNECT_TIMEOUT_S)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        prepare_sender(connection)
        connection.settimeout(CONNECT_TIMEOUT_S)
        connection.connect(address)
        began = time.monotonic()
        _report(send(connection, seconds), began)


@app.command()
def sink(directory: Directory, name: Name, bind: Annotated[str, typer.Option(help="address to listen on")]) -> None:
    """Receive from one source."""
    with socket.create_server((bind, 0), backlog=1) as listener:
        publish(directory, name, listener.getsockname()[:2])
        connection, _ = listener.accept()
    with connection:
        began = time.monotonic()
        _report(receive(connection), began)


def _report(count: int, began: float) -> None:
    typer.echo(json.dumps({"bytes": count, "seconds": round(time.monotonic() - began, 3)}))


if __name__ == "__main__":
    app()
