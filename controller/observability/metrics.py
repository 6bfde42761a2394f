"""Metrics server for Prometheus: ``/metrics`` over HTTP, computed from the published ``Status`` at each scrape."""

from __future__ import annotations

import errno
import gzip
import io
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread, local
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import ThreadingWSGIServer

from controller.config import MetricsConfig
from controller.log_limit import LimitedLog
from controller.observability.exposition import CONTENT_TYPE, Exposition
from controller.observability.families import FAMILIES
from controller.observability.shapes import Family
from controller.status import StatusBoard
from controller.tls import TlsContext
from signalbox.errors import InvalidInput

log = structlog.get_logger(__name__)
limited_log = LimitedLog(log)
"""Log for events that clients can cause any number of times."""

SILENT_S = 10.0
"""Seconds of silence after which a client is disconnected."""
MOST_S = 30.0
"""Seconds after which a client that has not finished is disconnected."""
LOOK_S = 0.5
"""Seconds between two searches for clients that are to be disconnected."""
ACCEPT_PAUSE_S = 0.1

_WHY = {
    "HTTP_REQUEST": "the client does not speak TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate",
}
"""Reasons in words, by OpenSSL's name of the error."""


@dataclass(slots=True, eq=False)
class _Client:
    """Connection of a client.

    ``has_requested``: whether the request has arrived completely. ``ended``: whether the connection has freed its
    place."""

    sock: socket.socket
    address: tuple[Any, ...]
    since: float
    has_requested: bool = False
    ended: bool = False


class _Server(ThreadingWSGIServer):
    """Server with a thread per connection, and at most ``most`` connections.

    A further connection takes the place of another (``displaced``) or is closed. So a scrape succeeds even if other
    clients occupy many places. The thread of the connection performs the TLS handshake. In the library, the accepting
    thread performs the handshake, so that a silent client locks out all others."""

    tls: TlsContext
    board: StatusBoard
    most: int
    request_queue_size = 64

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._clients: dict[socket.socket, _Client] = {}
        self._of_thread = local()
        self._lock = Lock()
        super().__init__(*arguments, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        client = _Client(request, client_address, time.monotonic())
        with self._lock:
            held = [other for other in self._clients.values() if not other.ended]
            full = len(held) >= self.most
            going = displaced(held, client) if full else None
            if going:
                _break_off(going)
            if not full or going:
                self._clients[request] = client
        if request not in self._clients:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started, so none would free the place
            with self._lock:
                del self._clients[request]
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        client = self._of_thread.client = self._clients[request]
        try:
            request.settimeout(SILENT_S)
            context = self.tls.current
            if context is None or self._shakes_hands(client, context, client_address):
                super().process_request_thread(client.sock, client_address)
        except OSError as error:
            log.debug("metrics client left", peer=client_address[0], why=str(error))
            client.sock.close()
        finally:
            with self._lock:
                del self._clients[request]

    def shutdown_request(self, request: Any) -> None:
        client: _Client | None = getattr(self._of_thread, "client", None)
        if client:
            client.ended = True  # before the client can notice the end and connect again
        super().shutdown_request(request)

    def _shakes_hands(self, client: _Client, context: ssl.SSLContext, address: Any) -> bool:
        """Perform the TLS handshake, count and log a failure, and return whether the handshake has succeeded.

        Raises ``OSError`` for a client that sends nothing, as port scanners do, and for a client that the server
        disconnects meanwhile."""
        if not client.sock.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError("the client sent nothing")
        try:
            client.sock = context.wrap_socket(client.sock, server_side=True, do_handshake_on_connect=False)
            client.sock.do_handshake()
        except OSError as error:
            if client.ended:
                raise
            with self._lock:
                self.board.metrics_refused = {"tls": self.board.metrics_refused["tls"] + 1}
            limited_log.warning("metrics client refused", reason="tls", peer=_name(address), why=_why(error))
            client.sock.close()
            return False
        return True

    def mark_requested(self) -> None:
        self._of_thread.client.has_requested = True

    def service_actions(self) -> None:
        limited_log.summarise()
        with self._lock:
            late = [client for client in self._clients.values() if time.monotonic() > client.since + MOST_S]
        for client in late:
            _break_off(client)

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno != errno.EINVAL:  # the server does not stop
                time.sleep(ACCEPT_PAUSE_S)  # out of file descriptors: do not retry without a pause
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log at level debug that a client has disconnected during its answer; by default a traceback is printed."""
        log.debug("metrics client failed", peer=client_address[0], exc_info=True)


def displaced(places: Sequence[_Client], newcomer: _Client) -> _Client | None:
    """Return the client whose place a newcomer takes when all places are occupied; None to refuse the newcomer.

    A client can lose its place only in these cases:
    - The client's request is not complete, and the newcomer has the same address, or an address with fewer places.
    - The client's request is complete, and the newcomer has an address with at least two places fewer.

    The client whose address has the most places loses its place. On a tie, a client without a complete request does,
    and then the client that connected first. ``places``: clients that have not ended."""
    held = Counter(client.address[0] for client in places)
    own = held[newcomer.address[0]]

    def may_go(client: _Client) -> bool:
        other = held[client.address[0]]
        if client.has_requested:
            return other > own + 1
        return other > own or client.address[0] == newcomer.address[0]

    going = [client for client in places if may_go(client)]
    return min(going, key=lambda client: (-held[client.address[0]], client.has_requested, client.since), default=None)


def _name(address: Any) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why(error: OSError) -> str:
    if verify_message := getattr(error, "verify_message", None):
        return f"the client's certificate is refused: {verify_message}"
    reason = getattr(error, "reason", None) or str(error)
    if isinstance(error, ssl.SSLEOFError | ConnectionError) or "_ALERT_" in reason:
        return f"the client ended the handshake: {reason}"
    return _WHY.get(reason, f"the handshake failed: {reason}")


def _break_off(client: _Client) -> None:
    client.ended = True
    with suppress(OSError):
        client.sock.shutdown(socket.SHUT_RDWR)


class _ToClient(io.BufferedIOBase):
    """Output stream to a client.

    TLS errors are raised as ``BrokenPipeError``, for which wsgiref prints no traceback."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            self._sock.sendall(data)
        except ssl.SSLError as error:
            raise BrokenPipeError(str(error)) from error
        return len(data)


class _Handler(WSGIRequestHandler):
    def setup(self) -> None:
        super().setup()
        self.wfile = _ToClient(self.connection)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing, because scrapes are frequent."""


class MetricsServer:
    """Server of ``/metrics`` in separate threads, which also exports the process's memory and CPU time.

    ``tls``: context of new connections."""

    def __init__(
        self,
        config: MetricsConfig,
        board: StatusBoard,
        tls: TlsContext | None = None,
        families: Sequence[Family] = FAMILIES,
    ) -> None:
        self._config = config
        self._board = board
        self._tls = tls or TlsContext("metrics", config.tls_files)
        self._exposition = Exposition(board, families=families)
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        self._running: tuple[WSGIServer, Thread] | None = None

    def start(self) -> int:
        """Start serving, and return the port. Raises ``InvalidInput`` if the server cannot listen on the address."""
        host, port = self._config.host, self._config.port
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            settings = {
                "address_family": found[0][0],
                "tls": self._tls,
                "board": self._board,
                "most": self._config.max_connections,
            }
            kind = type("Server", (_Server,), settings)
            server: _Server = kind((str(found[0][4][0]), port), _Handler)
        except OSError as error:
            message = f"cannot listen on {host}:{port}: {error.strerror or error}"
            raise InvalidInput.of("metrics", message) from None
        server.set_app(self._application(server.mark_requested))
        thread = Thread(target=server.serve_forever, args=(LOOK_S,), name="metrics", daemon=True)
        thread.start()
        self._running = server, thread
        return server.server_port

    def _application(self, mark_requested: Callable[[], None]) -> Any:
        """Return the WSGI application.

        The application renders one scrape at a time, so that other threads get the interpreter."""
        rendering = Lock()

        def answer(environ: Any, start_response: Any) -> list[bytes]:
            mark_requested()
            if environ["REQUEST_METHOD"] != "GET":
                start_response("405 Method Not Allowed", [("Allow", "GET")])
                return []
            headers = [("Content-Type", CONTENT_TYPE)]
            with rendering:
                body = self._exposition.text().encode() + generate_latest(self._process)
                if "gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""):
                    headers.append(("Content-Encoding", "gzip"))
                    body = gzip.compress(body, compresslevel=1)
            start_response("200 OK", headers)
            return [body]

        return answer

    def stop(self) -> None:
        """Stop, and return when the port is free again. Does nothing without ``start``."""
        if self._running:
            server, thread = self._running
            self._running = None
            server.socket.shutdown(socket.SHUT_RDWR)  # ends the thread's wait for clients
            server.shutdown()
            server.server_close()
            thread.join()
