"""Sign of life of the controller that has the claim in etcd, so that others notice its end before its lease ends.

The active controller listens at a port of its own, and reads nothing. Each standby keeps a connection to it. When the
process ends, its machine closes the connections and refuses new ones, and the standby may end the lease at once. A
machine or a network that fails does neither, and a process that is stopped keeps its connections; then the lease
decides. A wrong verdict costs a handover only: etcd and the switches refuse the former controller.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from signalbox.addresses import host_and_port

MOST_CONNECTIONS = 64
"""Largest number of connections that the active controller keeps; one more ends the oldest."""
CONNECT_S = 1.0
"""Longest time in seconds of an attempt to connect."""
PAUSE_S = 0.05
"""Seconds before a connection is tried again."""


class SignOfLife:
    """Listener of the active controller, at the local address from which it reaches ``towards`` (HOST:PORT)."""

    def __init__(self, towards: str) -> None:
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
        """Address as HOST:PORT; empty if there is no listener."""
        if self._server is None:
            return ""
        host, port, *_ = self._server.getsockname()
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        if self._server is not None:
            with suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)  # ends the thread's call
            self._server.close()

    @staticmethod
    def _keep(server: socket.socket) -> None:
        kept: deque[socket.socket] = deque()
        with suppress(OSError):  # closed
            while True:
                kept.append(server.accept()[0])
                if len(kept) > MOST_CONNECTIONS:
                    kept.popleft().close()
        for connection in kept:
            connection.close()


class Watch:
    """Connection of a standby to the address of one sign of life at a time, until ``close``."""

    def __init__(self) -> None:
        self._address = ""
        self._stopping = threading.Event()
        """Ends the thread that watches the address."""
        self._connection: socket.socket | None = None

    def follow(self, address: str, ended: Callable[[], None]) -> None:
        """Watch the process at the address instead of the one before, unless it is the same.

        A thread calls ``ended`` if that process has ended for certain: it accepted a connection, and its machine
        refuses another one."""
        if address != self._address:
            self.close()
            self._address, self._stopping = address, threading.Event()
            given = (address, ended, self._stopping)
            threading.Thread(target=self._run, args=given, name="watch-of-active", daemon=True).start()

    def close(self) -> None:
        self._address = ""
        self._stopping.set()
        if (connection := self._connection) is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # ends the thread's call

    def _run(self, address: str, ended: Callable[[], None], stopping: threading.Event) -> None:
        has_connected = False
        while not stopping.wait(PAUSE_S if has_connected else 0.0):
            try:
                with socket.create_connection(host_and_port(address), CONNECT_S) as connection:
                    has_connected = True
                    connection.settimeout(None)
                    self._connection = connection
                    while not stopping.is_set() and connection.recv(1024):
                        pass
            except ConnectionRefusedError:
                if has_connected and not stopping.is_set():
                    ended()
                return
            except ConnectionResetError:
                pass
            except (OSError, ValueError):
                stopping.wait(CONNECT_S)
