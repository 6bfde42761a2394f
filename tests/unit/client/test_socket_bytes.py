"""Bytes that this process's own connections have carried, read from the kernel, over real TCP on loopback."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from signalbox.jobs.reports import Connected
from signalbox.socket_bytes import Exchanged, OwnSockets
from tests.support.waiting import until

HERE, THERE = "127.0.0.11", "127.0.0.12"
BYTES = 300_000
EDGE = 2
"""Bytes that TCP acknowledges for the beginning and the end of a connection."""

Ends = tuple[socket.socket, socket.socket]


class Loopback:
    """Connections from ``HERE`` to ``THERE`` that live as long as the test."""

    def __init__(self, family: socket.AddressFamily = socket.AF_INET, mapped: str = "") -> None:
        self._family, self._mapped = family, mapped
        self.listener = socket.socket(family)
        self.listener.bind((mapped + THERE, 0))
        self.listener.listen(64)
        self.open: list[socket.socket] = [self.listener]

    def connect(self) -> Ends:
        near = socket.socket(self._family)
        near.bind((self._mapped + HERE, 0))
        near.connect(self.listener.getsockname())
        far, _ = self.listener.accept()
        self.open += [near, far]
        return near, far


@pytest.fixture(params=["IPv4", "mapped"])
def loopback(request: pytest.FixtureRequest) -> Iterator[Loopback]:
    made = Loopback(socket.AF_INET6, "::ffff:") if request.param == "mapped" else Loopback()
    yield made
    for sock in made.open:
        sock.close()


def ours(connected: Connected) -> bool:
    return {connected.src_ip, connected.dst_ip} == {HERE, THERE}


def send(sender: socket.socket, receiver: socket.socket, count: int) -> None:
    left = count
    while left:
        sent = sender.send(bytes(min(left, 50_000)))
        left -= sent
        while sent:
            sent -= len(receiver.recv(sent))


def polled(sockets: OwnSockets) -> dict[tuple[str, str], Exchanged]:
    sockets.poll()
    return sockets.exchanged


def carried(sockets: OwnSockets, there: int, back: int) -> bool:
    """Return whether both ends have counted ``there`` bytes from ``HERE`` and ``back`` bytes from ``THERE``.

    Acknowledgements may arrive later."""
    exchanged = polled(sockets)
    near, far = exchanged[HERE, THERE], exchanged[THERE, HERE]
    counted = (near.sent - there, near.received - back, far.sent - back, far.received - there)
    return all(0 <= more <= EDGE for more in counted)


def exchanged(loopback: Loopback) -> tuple[OwnSockets, socket.socket, socket.socket]:
    """Return sockets that have counted ``BYTES`` bytes of a connection, and both ends of the connection."""
    sockets = OwnSockets(ours)
    near, far = loopback.connect()
    send(near, far, BYTES)
    until(lambda: carried(sockets, BYTES, 0))
    return sockets, near, far


def test_bytes_of_both_directions_are_counted_at_both_ends(loopback: Loopback) -> None:
    sockets, near, far = exchanged(loopback)
    send(far, near, 1000)
    until(lambda: carried(sockets, BYTES, 1000))
    send(near, far, 5)
    until(lambda: carried(sockets, BYTES + 5, 1000))
    loopback.connect()
    sockets.poll()
    assert len(sockets.connections) == 4, "this process is their source"
    port, peer_port = near.getsockname()[1], loopback.listener.getsockname()[1]
    assert Connected(HERE, port, THERE, peer_port) in sockets.connections
    assert Connected(THERE, peer_port, HERE, port) in sockets.connections


def test_bytes_of_a_closed_connection_are_kept_and_it_is_open_no_more(loopback: Loopback) -> None:
    sockets, near, far = exchanged(loopback)
    near.close()
    far.close()
    before = polled(sockets)[HERE, THERE].sent
    assert BYTES <= before <= BYTES + EDGE
    assert sockets.connections == frozenset()
    near, far = loopback.connect()
    send(near, far, 1000)
    until(lambda: polled(sockets)[HERE, THERE].sent >= before + 1000)
    assert len(sockets.connections) == 2


def test_a_connection_that_was_reset_is_counted_once(loopback: Loopback) -> None:
    sockets, near, far = exchanged(loopback)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    far.close()
    for _ in range(3):
        assert BYTES <= polled(sockets)[HERE, THERE].sent <= BYTES + EDGE
    assert sockets.connections == frozenset()
    near.close()
    assert BYTES <= polled(sockets)[HERE, THERE].sent <= BYTES + EDGE


def test_sockets_of_other_processes_are_not_ours(loopback: Loopback) -> None:
    address, port = loopback.listener.getsockname()[:2]
    program = (
        "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), "
        f"source_address=({loopback._mapped + HERE!r}, 0)); s.sendall(bytes(100)); sys.stdin.read()"
    )
    sockets = OwnSockets(ours)
    with subprocess.Popen([sys.executable, "-c", program, address, str(port)], stdin=subprocess.PIPE) as other:
        far, _ = loopback.listener.accept()
        loopback.open.append(far)
        assert far.recv(100, socket.MSG_WAITALL)
        sockets.poll()
        assert {connected.src_ip for connected in sockets.connections} == {THERE}
        assert set(sockets.exchanged) == {(THERE, HERE)}
        other.communicate()


def test_only_what_is_of_interest_is_looked_at(loopback: Loopback) -> None:
    asked: list[Connected] = []

    def only_from_here(connected: Connected) -> bool:
        if ours(connected):
            asked.append(connected)
        return connected.src_ip == HERE and connected.dst_ip == THERE

    sockets = OwnSockets(only_from_here)
    near, far = loopback.connect()
    for count in (1, 2, 3):
        send(near, far, count)
        sockets.poll()
    assert set(sockets.exchanged) == {(HERE, THERE)}
    assert len(asked) == 2, "once each"


def test_ipv6_is_left_out() -> None:
    with socket.socket(socket.AF_INET6) as listener:
        try:
            listener.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        listener.listen()
        with socket.create_connection(listener.getsockname()[:2]) as near, listener.accept()[0]:
            sockets = OwnSockets()
            sockets.poll()
            assert near.getsockname()[1] not in {connected.src_port for connected in sockets.connections}


def test_a_kernel_that_does_not_tell_is_an_error(monkeypatch: pytest.MonkeyPatch, loopback: Loopback) -> None:
    sockets, *_ = exchanged(loopback)
    monkeypatch.setattr("signalbox.socket_bytes.SOCK_DIAG_BY_FAMILY", 21)
    with pytest.raises(OSError, match="sock_diag") as error:
        sockets.poll()
    assert error.value.errno
    assert sockets.exchanged[HERE, THERE].sent >= BYTES, "what was read stays"
