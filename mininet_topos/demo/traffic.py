r"""Unannounced traffic: one TCP connection that sends as fast as it can, for some seconds; or many short ones.

The program runs inside hosts' namespaces. The sink listens on any free port and publishes it in a directory that both
share:

    python -m mininet_topos.demo.traffic sink --bind 10.0.2.4 --rendezvous DIR --name to-leaf2
    python -m mininet_topos.demo.traffic source --rendezvous DIR --name to-leaf2 --seconds 35
    python -m mininet_topos.demo.traffic mice --bind 10.0.2.4 --peers 10.0.1.4,10.0.3.4 --per-second 50 \
        --rendezvous DIR --name begin --seconds 35

The source ends after its time, the sink when the connection closes; each prints ``{"bytes", "seconds"}``. ``mice``
accepts connections from its start on, and begins to send short transfers when the name is published. It accepts
until its peers have sent all their transfers, and prints ``{"sent", "failed"}``.
"""

import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from mininet_topos.trainer.sockets import find, prepare_sender, publish

BLOCK = bytes(16 * 1024)
CONNECT_TIMEOUT_S = 30.0
WAIT_S = 600.0
MICE_PORT = 7_000
MOUSE = bytes(1000)
AT_ONCE = 32
"""Number of mice (short flows) that a host handles at a time; many, because a handshake may wait in a queue."""

app = typer.Typer(add_completion=False)

Directory = Annotated[Path, typer.Option("--rendezvous", help="Directory that source and sink share.")]
Name = Annotated[str, typer.Option(help="Name of the sink; its address is in a file of this name in the directory.")]


def send(connection: socket.socket, seconds: float) -> int:
    """Send for ``seconds``, or until the sink closes the connection; return the number of bytes given to the kernel."""
    deadline = time.monotonic() + seconds
    sent = 0
    with suppress(TimeoutError, ConnectionError):
        while (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            sent += connection.send(BLOCK)
    return sent


def receive(connection: socket.socket) -> int:
    """Receive until the source closes the connection, and return the number of bytes."""
    received = 0
    buffer = bytearray(len(BLOCK))
    with suppress(ConnectionError):
        while got := connection.recv_into(buffer, flags=socket.MSG_WAITALL):  # one wake-up per block, not per packet
            received += got
    return received


@app.command()
def source(directory: Directory, name: Name, seconds: Annotated[float, typer.Option(min=0)]) -> None:
    """Send to the sink for some seconds."""
    address = find(directory, name, WAIT_S)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        prepare_sender(connection)
        connection.settimeout(CONNECT_TIMEOUT_S)
        connection.connect(address)
        began = time.monotonic()
        _report(send(connection, seconds), began)


@app.command()
def sink(directory: Directory, name: Name, bind: Annotated[str, typer.Option(help="Address to listen on.")]) -> None:
    """Receive from one source."""
    with socket.create_server((bind, 0), backlog=1) as listener:
        publish(directory, name, listener.getsockname()[:2])
        connection, _ = listener.accept()
    with connection:
        began = time.monotonic()
        _report(receive(connection), began)


@app.command()
def mice(
    directory: Directory,
    name: Name,
    bind: Annotated[str, typer.Option(help="Address to listen on and to send from.")],
    peers: Annotated[str, typer.Option(help="Addresses to send to, separated by commas.")],
    per_second: Annotated[float, typer.Option(min=0.1)],
    seconds: Annotated[float, typer.Option(min=0)],
) -> None:
    """Send short transfers to the peers in turn, and receive theirs."""
    with socket.create_server((bind, MICE_PORT), backlog=512) as listener, ThreadPoolExecutor(AT_ONCE) as pool:
        threading.Thread(target=_receive_mice, args=(listener,), daemon=True).start()
        find(directory, name, WAIT_S)
        targets = itertools.cycle(peers.split(","))
        sent = [pool.submit(_send_mouse, bind, next(targets)) for _ in _beats(per_second, seconds)]
        arrived = sum(each.result() for each in sent)
        publish(directory, f"{name}-sent-{bind}", listener.getsockname())
        for peer in peers.split(","):
            find(directory, f"{name}-sent-{peer}", WAIT_S)
    typer.echo(json.dumps({"sent": arrived, "failed": len(sent) - arrived}))


def _beats(per_second: float, seconds: float) -> Iterator[None]:
    began = time.monotonic()
    for number in range(int(per_second * seconds)):
        time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        yield


def _send_mouse(source: str, target: str) -> bool:
    try:
        with socket.create_connection((target, MICE_PORT), CONNECT_TIMEOUT_S, (source, 0)) as connection:
            connection.sendall(MOUSE)
    except OSError:
        return False
    return True


def _receive_mice(listener: socket.socket) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool, suppress(OSError):  # until the listener is closed
        while True:
            pool.submit(_receive_mouse, listener.accept()[0])


def _receive_mouse(connection: socket.socket) -> None:
    with connection, suppress(OSError):
        connection.settimeout(CONNECT_TIMEOUT_S)
        receive(connection)


def _report(count: int, began: float) -> None:
    typer.echo(json.dumps({"bytes": count, "seconds": round(time.monotonic() - began, 3)}))


if __name__ == "__main__":
    app()
