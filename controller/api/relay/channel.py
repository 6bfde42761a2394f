"""What the API's thread and the relay process tell each other: whole messages, in order.

In: messages of either end. Out: the same at the other end, several of them in one packet. Each end has an asyncio loop.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

AT_ONCE = 128
"""Messages in a packet, of about 100 bytes each."""
MAX_PACKET = 1 << 18
MAX_DUE = 1024
"""Messages that wait for the other end, before nothing more is begun that leads to others."""


class Accepted(NamedTuple):
    """A client has connected. ``client``: what is counted together. ``peer``: for people, with the port."""

    id: int
    client: str
    peer: str


class Opened(NamedTuple):
    """The client has begun to speak; its connection waits for ``Connect``."""

    id: int


class Gone(NamedTuple):
    """The connection has ended."""

    id: int


class Refused(NamedTuple):
    """A connection is ended, or ended before its TLS handshake did."""

    reason: str
    peer: str
    why: str


class Failed(NamedTuple):
    """A fault of ours, which the process goes on after."""

    why: str


class Pong(NamedTuple):
    """It works."""


class Connect(NamedTuple):
    """The connection may go on to gRPC."""

    id: int


class End(NamedTuple):
    """Break the connection off."""

    id: int


class LetIn(NamedTuple):
    """A call of the connection was let in: it is known who its client is."""

    id: int


class Punish(NamedTuple):
    """A call of the connection was refused."""

    id: int


class StopListening(NamedTuple):
    pass


class Finish(NamedTuple):
    """End all connections, after what is left to send, and the process."""


class Ping(NamedTuple):
    pass


FromProcess = Accepted | Opened | Gone | Refused | Failed | Pong
ToProcess = Connect | End | LetIn | Punish | StopListening | Finish | Ping


def pair() -> tuple[socket.socket, socket.socket]:
    """Two sockets for a ``Channel`` each."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


Sent = TypeVar("Sent")
Received = TypeVar("Received")


class Channel(Generic[Sent, Received]):
    """One end, in the loop that runs. ``received`` is called with each message, ``ended`` when the other end has
    closed."""

    def __init__(
        self, sock: socket.socket, received: Callable[[Received], object], ended: Callable[[], object]
    ) -> None:
        self._sock = sock
        self._received, self._ended = received, ended
        self._loop = asyncio.get_running_loop()
        self._due: deque[Sent] = deque()
        self._waits = False  # for the other end to read
        self._is_open = True
        sock.setblocking(False)
        self._loop.add_reader(sock, self._read)

    @property
    def is_behind(self) -> bool:
        """The other end does not read as fast as messages are sent."""
        return len(self._due) > MAX_DUE

    def send(self, message: Sent) -> None:
        """With all that is sent in this turn of the loop. Does nothing once the channel has ended."""
        if not self._is_open:
            return
        self._due.append(message)
        if len(self._due) == 1:
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """What is not sent yet is dropped. A second time does nothing."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
            self._due.clear()

    def _flush(self) -> None:
        while self._due and self._is_open:
            packet = [self._due[n] for n in range(min(AT_ONCE, len(self._due)))]
            try:
                self._sock.send(pickle.dumps(packet))
            except BlockingIOError:
                if not self._waits:
                    self._waits = True
                    self._loop.add_writer(self._sock, self._flush)
                return
            except OSError:
                return  # ``_read`` learns of it
            for _ in packet:
                self._due.popleft()
        if self._waits and self._is_open:
            self._waits = False
            self._loop.remove_writer(self._sock)

    def _read(self) -> None:
        try:
            packet = self._sock.recv(MAX_PACKET)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self.close()
            self._ended()
            return
        for message in pickle.loads(packet):
            if self._is_open:
                self._received(message)
