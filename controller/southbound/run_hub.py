"""Main loop of the southbound: the framework's hub in the main thread, with the app and the listener.

The listener counts and logs refused connections. Each connection has a greenlet of its own, so that an error of a peer
ends only its own connection.
"""

from __future__ import annotations

import socket
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import structlog

from controller.config import Config, OpenFlowConfig
from controller.fabric.messages import ConnectionRefused, RefusalReason
from controller.fabric.topology import Dpid
from controller.southbound.connection import LOOK_AGAIN_S, Connection
from controller.southbound.framework import (
    AppManager,
    Events,
    HubSocket,
    cfg,
    green_socket,
    ofp_handler,
    pause,
    spawn,
    wait_readable,
)
from controller.southbound.holding import Holding
from controller.southbound.limits import Backlog, Limits, Put
from controller.southbound.outbox import Outbox, stop_signals
from controller.tls import TlsContext
from signalbox.addresses import is_loopback

log = structlog.get_logger(__name__)

APP_MODULE = "controller.southbound.app"
SWITCH_INTERVAL_S = 0.001
"""Seconds for which a thread may keep Python's interpreter while another thread waits for it.

The hub and the API's thread release the interpreter at every system call. While one thread computes, a median echo
takes 5.3 ms with Python's default of 5 ms, and 0.7 ms with 0.5 ms. Below 1 ms, busy threads switch so often that each
needs more time for the same work: a fifth more at 0.1 ms."""


def run_hub(
    config: Config,
    put: Put,
    outbox: Outbox,
    tls: TlsContext,
    holding: Holding,
    on_ready: Callable[[], None] = lambda: None,
    known: Collection[Dpid] = (),
) -> None:
    """Run OpenFlow until ``outbox.stop()``, SIGTERM or SIGINT. Call it once, in the main thread.

    - ``put``: function that the hub calls with every message for the control loop. The function must not block.
    - ``on_ready``: function that is called once, when switches can connect.
    - ``tls``: context of new connections.
    - ``holding``: switches whose master (in the sense of OpenFlow) this process may become.
    - ``known``: switches of the fabric, for which connections are reserved (``limits.Limits``).

    Raises ``ListenError``, or the exception of a handler."""
    listener = Listener(listen(config.openflow), config.openflow, tls, put, outbox, known)
    if tls.current is None and not is_loopback(config.openflow.host):
        log.warning("OpenFlow is open to the network without TLS: any machine that reaches it can pose as a switch")
    cfg.CONF(args=[], project="signalbox", default_config_files=[], default_config_dirs=[])
    # The framework's own server is not used: it shares its port, fails at the second TLS connection, and ends at errors
    # of peers.
    ofp_handler.OpenFlowController = _NoServer
    # ``stop`` must not log: the signal may have interrupted the logger.
    with stop_signals(outbox.stop), _short_turns():
        apps = AppManager()
        apps.load_apps([APP_MODULE])
        apps.instantiate_apps(
            config=config,
            put=put,
            outbox=outbox,
            holding=holding,
            known=frozenset(known),
        )
        app = next(app for app in apps.applications.values() if type(app).__module__ == APP_MODULE)
        try:
            listener.start()
            on_ready()
            for command in outbox.receive(wait_readable):
                app.carry_out(command)
            log.info("stopping")
        finally:
            listener.close()
            app.disconnect()
            apps.close()
            outbox.close()


class _NoServer:
    """Server that does nothing, which the framework starts in place of its own; ``Listener`` accepts the switches."""

    def __call__(self) -> None: ...


@contextmanager
def _short_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


BACKLOG = 512
MAX_HANDSHAKES = 256
"""Largest number of connections in their handshake; half of ``max_connections`` if that is less.

A further connection ends the oldest handshake of the address with the most handshakes."""
LOG_S = 10.0
LOG_LINES = 4
"""Largest number of refusals logged per ``LOG_S`` seconds; further refusals are only counted."""
PAUSE_S = 0.5


class ListenError(OSError):
    """The controller cannot listen on the OpenFlow address."""


def listen(openflow: OpenFlowConfig) -> Any:
    """Return a listening socket that shares its port with no other process. Raises ``ListenError``."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(openflow.host, openflow.port, type=socket.SOCK_STREAM)[0]
        sock = green_socket(family, kind)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise ListenError(f"cannot listen for OpenFlow on {openflow.host} port {openflow.port}: {reason}") from None
    return sock


class Listener:
    """Acceptor of connections; switches can connect after ``start``."""

    def __init__(
        self,
        sock: Any,
        openflow: OpenFlowConfig,
        tls: TlsContext,
        put: Put,
        outbox: Outbox,
        known: Iterable[Dpid] = (),
    ) -> None:
        """Prepare the listener, without accepting connections yet.

        ``known``: switches of the fabric, for which connections are reserved (``limits.Limits``)."""
        self._socket = sock
        self._openflow = openflow
        self._tls = tls
        self._put = put
        self._outbox = outbox
        self._in_handshake: dict[Connection, None] = {}
        self._limits = Limits(openflow, known)
        self._backlog = Backlog(self._limits.backlog)
        self._events = Events()
        self._ignored: Counter[str] = Counter()
        self._logged = 0
        self._closed = False

    def start(self) -> None:
        spawn(self._outbox, self._report)
        spawn(self._outbox, self._accept)

    def close(self) -> None:
        """Refuse new connections; existing ones continue."""
        self._closed = True
        self._socket.close()

    def _accept(self) -> None:
        while not self._closed:
            while self._backlog.exceeds():
                pause(LOOK_AGAIN_S)  # until the control loop has counted earlier refusals
            try:
                sock, address = self._socket.accept()
            except OSError as error:
                if self._closed:
                    return
                # Out of file descriptors, or the peer is gone: temporary.
                log.warning("cannot accept a connection", why=str(error))
                pause(PAUSE_S)
                continue
            hub_socket = HubSocket(sock)
            connection = Connection(
                hub_socket,
                address[0],
                address[1],
                self._openflow,
                self._tls.current,
                self._events,
                self._refused,
                self._ignored,
                self._limits,
                self._outbox,
            )
            self._end_oldest_handshake()
            refused = self._limits.connect(connection.address)
            if refused:
                pause()  # lets the connection that was just ended free its place
                refused = self._limits.connect(connection.address)
            if refused:
                connection.refuse(*refused)
                hub_socket.close()
                continue
            self._in_handshake[connection] = None
            spawn(self._outbox, partial(self._serve, connection))

    def _serve(self, connection: Connection) -> None:
        try:
            connection.serve()
        finally:
            dpid = None if connection.id is None else Dpid(connection.id)
            self._limits.leave(connection.address, dpid, len(connection.ports))
            self._in_handshake.pop(connection, None)

    def _end_oldest_handshake(self) -> None:
        for connection in [connection for connection in self._in_handshake if connection.id is not None]:
            del self._in_handshake[connection]
        most = min(MAX_HANDSHAKES, self._openflow.max_connections // 2)
        if len(self._in_handshake) >= most:
            ((address, _),) = Counter(connection.address for connection in self._in_handshake).most_common(1)
            oldest = next(connection for connection in self._in_handshake if connection.address == address)
            del self._in_handshake[oldest]
            oldest.refuse("silent", f"{most} newer connections wait for their handshake")

    def _refused(self, connection: Connection, reason: RefusalReason, why: str) -> None:
        dpid = None if connection.id is None else Dpid(connection.id)
        self._put(ConnectionRefused(connection.peer, dpid, reason), self._backlog)
        self._logged += 1
        if self._logged <= LOG_LINES:
            switch = {} if dpid is None else {"dpid": f"{dpid:#x}"}
            log.warning("connection refused", peer=connection.peer, reason=reason, why=why, **switch)

    def _report(self) -> None:
        while True:
            if self._logged > LOG_LINES:
                log.warning("more connections refused", count=self._logged - LOG_LINES)
            if self._ignored:
                kinds = ", ".join(f"{kind}: {count}" for kind, count in self._ignored.items())
                log.warning("messages ignored", kinds=kinds)
            self._logged = 0
            self._ignored.clear()
            pause(LOG_S)
