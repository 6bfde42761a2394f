"""Southbound of a member in a process of its own: its main function, and the exchange with its parent.

The parent sends packets of the control loop (``uplink``), answers to questions, and new files. The process sends
packets, and asks whether it may claim a switch. All code in the process runs in the hub. The process ends when its
parent ends.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import structlog

from controller.config import Config
from controller.fabric.topology import Dpid
from controller.link.codec import Refused
from controller.southbound.framework import HubSocket, green_socket, pause, spawn
from controller.southbound.outbox import Outbox
from controller.southbound.process_messages import Alive, Broken, CannotListen, Claim, NewFiles, Stop
from controller.southbound.run_hub import ListenError, run_hub
from controller.southbound.uplink import Uplink
from controller.tls import TlsContext

log = structlog.get_logger(__name__)

_SIZE = struct.Struct("!i")
"""Format of the size in bytes that precedes each message, as in ``multiprocessing.connection``."""
CHUNK = 1 << 16
ALIVE_S = 1.0
"""Seconds between two ``Alive`` messages to the parent."""


class AskedHolding:
    """``Holding`` in the process of the southbound, which cannot see the assignments itself.

    This class asks the parent process about each switch, and remembers the answers. A method without an answer sends
    the question, and returns None or False for now."""

    is_shared = True

    def __init__(self, ask: Callable[[Claim], None]) -> None:
        self.version = 0
        self._ask = ask
        self._claims: dict[Dpid, Claim] = {}

    def generation(self, dpid: Dpid) -> int | None:
        if dpid not in self._claims:
            self._ask(Claim(dpid, None))
            return None
        return self._claims[dpid].generation

    def may_claim(self, dpid: Dpid, since: float) -> bool:
        known = self._claims.get(dpid)
        if known and known.may_claim and known.since == since:
            return True
        self._ask(Claim(dpid, since))
        return False

    def answered(self, claim: Claim) -> None:
        before = self._claims.get(claim.dpid)
        self._claims[claim.dpid] = claim
        self.version += before is None or before.generation != claim.generation


def run(
    connection: Connection,
    config: Config,
    logging: Callable[[], object],
) -> None:
    """Run the southbound until the parent stops it. Main function of the process."""
    logging()
    outbox = Outbox()
    pipe = _ParentConnection(socket.socket(fileno=connection.fileno()), outbox)
    uplink = Uplink(pipe.write, outbox, partial(spawn, outbox), pause)
    asked = AskedHolding(pipe.write)
    tls = TlsContext("openflow", config.openflow.tls_files)

    def received(message: Any) -> None:
        match message:
            case bytes():
                try:
                    uplink.received(message)
                except Refused as error:
                    log.error("a packet of the control loop cannot be read", why=str(error))
                    uplink.broken()
                    pipe.write(Broken())
            case Claim():
                asked.answered(message)
            case Broken():
                uplink.broken()
            case NewFiles(configure, files):
                configure()
                tls.prepare(files)()
            case Stop():
                outbox.stop()

    def show_life() -> None:
        while True:
            pipe.write(Alive())
            pause(ALIVE_S)

    spawn(outbox, partial(pipe.read, received))
    spawn(outbox, show_life)
    try:
        run_hub(config, uplink.put, outbox, tls, asked)
    except ListenError as error:
        connection.send(CannotListen(str(error)))


class _ParentConnection:
    """Connection to the parent that waits in the hub; messages are pickled, as by ``multiprocessing.connection``."""

    def __init__(self, sock: socket.socket, outbox: Outbox) -> None:
        self._socket = HubSocket(green_socket(sock))
        self._outbox = outbox
        self._unsent = bytearray()
        self._drains = False

    def write(self, message: object) -> None:
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._unsent += _SIZE.pack(len(data)) + data
        if not self._drains:
            self._drains = True
            spawn(self._outbox, self._drain)

    def _drain(self) -> None:
        while self._unsent:
            try:
                del self._unsent[: self._socket.send_now(bytes(self._unsent[:CHUNK]))]
                if self._unsent:
                    self._socket.wait_writable()
            except OSError:  # the parent has ended, which ``read`` notices
                self._unsent.clear()
        self._drains = False

    def read(self, received: Callable[[Any], None]) -> None:
        data = bytearray()
        while chunk := self._receive():
            data += chunk
            while len(data) >= _SIZE.size:
                (size,) = _SIZE.unpack_from(data)
                if len(data) < (end := _SIZE.size + size):
                    break
                message = bytes(data[_SIZE.size : end])
                del data[:end]
                received(pickle.loads(message))
        self._outbox.stop()

    def _receive(self) -> bytes:
        try:
            return self._socket.receive(CHUNK)
        except OSError:
            return b""
