"""Sign of life of a member: other members notice the end of its process before its lease in etcd ends.

The member listens at a port of its own. On each connection it sends a random text, the *word*, and reads nothing. The
word is also in etcd, so that no other process at the same address is mistaken for the member. Each other member keeps a
connection to this port. When the process ends, its machine closes the connections and refuses new ones. The other
members may then end the lease at once. If the machine or the network fails, or the process is slow or stopped, nothing
refuses connections. The other members then wait until the lease runs out.

If the network itself breaks the connection and refuses a new one, the other members end the lease of a member that
still works (docs/how-to/run-several-controllers.md#what-to-expect).
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from signalbox.addresses import host_and_port

MOST_CONNECTIONS = 128
"""Largest number of connections that a member keeps. A further one ends the oldest."""
CONNECT_S = 1.0
"""Time limit in seconds of an attempt to connect."""
PAUSE_S = 0.05
"""Seconds until the next attempt to connect or to accept a connection."""


class SignOfLife:
    """Server that other members connect to, in order to notice the end of this process.

    ``towards``: HOST:PORT of a peer. The server listens at the local address from which this machine reaches the
    peer."""

    def __init__(self, towards: str) -> None:
        self._word = secrets.token_hex(16)
        self._ended = threading.Event()
        self._server: socket.socket | None = None
        with suppress(OSError):
            family, *_, to = socket.getaddrinfo(*host_and_port(towards), type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(to)  # sends nothing
                host = probe.getsockname()[0]
            self._server = socket.create_server((host, 0), family=family)
            threading.Thread(target=self._keep, args=(self._server,), name="sign-of-life", daemon=True).start()

    @property
    def address(self) -> str:
        """HOST:PORT, a space and the word; empty if there is no listener."""
        if self._server is None:
            return ""
        host, port, *_ = self._server.getsockname()
        return f"[{host}]:{port} {self._word}" if ":" in host else f"{host}:{port} {self._word}"

    def close(self) -> None:
        self._ended.set()
        if self._server is not None:
            with suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)  # ends the thread's call
            self._server.close()

    def _keep(self, server: socket.socket) -> None:
        kept: deque[socket.socket] = deque()
        while not self._ended.is_set():
            try:
                connection = server.accept()[0]
                kept.append(connection)
                if len(kept) > MOST_CONNECTIONS:
                    kept.popleft().close()
                connection.setblocking(False)
                connection.send(self._word.encode())
            except OSError:  # closed by ``close`` or by the caller, or there are too many open files
                self._ended.wait(PAUSE_S)
        for connection in kept:
            connection.close()


class Watch:
    """Watcher of one sign of life at a time, until ``close``."""

    def __init__(self) -> None:
        self._address = ""
        self._stopping = threading.Event()
        """Event that ends the thread that watches the address."""
        self._connection: socket.socket | None = None
        self.known = ""
        """Address at which a process has sent the right word."""

    def follow(self, address: str, ended: Callable[[], None]) -> None:
        """Watch the process with this ``SignOfLife.address``, and stop watching the earlier one.

        A thread calls ``ended`` when the process has certainly ended: its word was received once, and its machine now
        refuses a connection."""
        if address != self._address:
            self.close()
            self._address, self._stopping = address, threading.Event()
            given = (address, ended, self._stopping)
            threading.Thread(target=self._run, args=given, name="watch-of-member", daemon=True).start()

    def close(self) -> None:
        self._address = ""
        self._stopping.set()
        if (connection := self._connection) is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # ends the thread's call

    def _run(self, address: str, ended: Callable[[], None], stopping: threading.Event) -> None:
        place, _, word = address.partition(" ")
        while not stopping.wait(PAUSE_S):
            try:
                with socket.create_connection(host_and_port(place), CONNECT_S) as connection:
                    connection.settimeout(None)
                    self._connection = connection
                    received = b""
                    while not stopping.is_set() and (more := connection.recv(1024)):
                        received = (received + more)[: len(word) + 1]
                        if received == word.encode():
                            self.known = address
            except ConnectionRefusedError:
                if self.known == address and not stopping.is_set():
                    ended()
                return
            except ConnectionResetError:
                pass
            except (OSError, ValueError):
                stopping.wait(CONNECT_S)
