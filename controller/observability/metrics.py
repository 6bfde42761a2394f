"""What Prometheus reads, over HTTP: the metrics of ``families``, computed from the published ``Status`` at scrape time.

In: the ``StatusBoard``; the certificate when TLS is configured. Out: ``/metrics``.
"""

from __future__ import annotations

import io
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock, Thread, local
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from controller.config import MetricsConfig
from controller.errors import InvalidInput
from controller.fabric.parts import End, PartKey, PartKind
from controller.fabric.topology import Fabric, LinkId
from controller.histogram import Histogram
from controller.log_limit import LimitedLog
from controller.observability.families import FAMILIES
from controller.observability.shapes import Family, LinkLabels, Snapshot
from controller.status import Status, StatusBoard
from controller.tls import TlsContext

log = structlog.get_logger(__name__)
limited_log = LimitedLog(log)
"""For what clients can cause."""

SILENT_S = 10.0
"""A client that is silent for so long is dropped."""
MOST_S = 30.0
"""And one that has not finished after this time."""
ACCEPT_PAUSE_S = 0.1

_WHY = {
    "HTTP_REQUEST": "the client does not speak TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate",
}
"""In words, by what OpenSSL calls it."""


class StatusCollector(Collector):
    """Renders ``FAMILIES`` from the newest status, in the thread of the scrape. ``clock``: monotonic seconds."""

    def __init__(self, board: StatusBoard, clock: Callable[[], float] = time.monotonic) -> None:
        self._board = board
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        status = self._board.status
        status = replace(status, fabric=_with_unique_names(status.fabric))
        names = _names_of_down(status)
        snapshot = Snapshot(status, self._clock(), _links(status.fabric), self._board, names)
        for family in FAMILIES:
            if family.histograms:
                yield _histograms(family, family.histograms(snapshot))
                continue
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = kind(family.name, family.help, labels=family.labels)
            for labels, value in family.samples(snapshot):
                metric.add_metric(labels, value)
            yield metric


def _histograms(family: Family, values: Iterable[tuple[tuple[str, ...], Histogram]]) -> HistogramMetricFamily:
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for labels, value in values:
        metric.add_metric(labels, list(value.buckets), value.total)
    return metric


def _with_unique_names(fabric: Fabric) -> Fabric:
    """Two switches of one name would make two series one: theirs get the dpid behind."""
    count = Counter(switch.name for switch in fabric.switches.values())
    if max(count.values(), default=0) <= 1:
        return fabric
    switches = {
        dpid: replace(switch, name=f"{switch.name}({dpid:#x})") if count[switch.name] > 1 else switch
        for dpid, switch in fabric.switches.items()
    }
    return replace(fabric, switches=switches)


def _names_of_down(status: Status) -> dict[PartKey, tuple[str, ...]]:
    """The names of their switches: as of the switches that are there; of others that are not unique with the dpid."""
    fabric, down = status.fabric, status.down_parts
    count = Counter(switch.name for switch in fabric.switches.values())
    count.update(part.name for part in down.values() if part.kind is PartKind.SWITCH)

    def name(end: End) -> str:
        if end.at.dpid in fabric.switches:
            return fabric.name(end.at.dpid)
        return f"{end.switch}({end.at.dpid:#x})" if count[end.switch] > 1 else end.switch

    return {key: tuple(map(name, part.ends)) for key, part in down.items()}


def _links(fabric: Fabric) -> dict[LinkId, tuple[LinkLabels, float]]:
    """Named like ``Fabric.link_name``, in one pass. Several addresses behind one port share the first one's link."""
    links: dict[LinkId, tuple[LinkLabels, float]] = {}
    for link_id, link in fabric.links.items():
        labels = LinkLabels(fabric.link_name(link_id), fabric.name(link.src.dpid), fabric.name(link.dst.dpid), "fabric")
        links[link_id] = labels, link.capacity_bps
    for host in fabric.hosts.values():
        switch = fabric.name(host.at.dpid)
        port = f"{switch}:{host.at.port}"
        links.setdefault(host.uplink, (LinkLabels(f"{host.ip}>{port}", host.ip, switch, "edge"), host.nic_bps))
        links.setdefault(host.downlink, (LinkLabels(f"{port}>{host.ip}", switch, host.ip, "edge"), host.nic_bps))
    return links


@dataclass(slots=True, eq=False)
class _Client:
    """A connection and its thread. ``asked``: its request is complete. ``ended``: by the server."""

    sock: socket.socket
    since: float
    asked: bool = False
    ended: bool = False


class _Server(ThreadingWSGIServer):
    """A thread per connection, and so many at most: the newest ends the oldest that has not asked for anything yet, so
    that a scrape gets through whoever holds the others. The library's own TLS shakes hands where connections are
    accepted: one silent client would keep all others out."""

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
        with self._lock:
            full = len(self._clients) >= self.most
            oldest = next((client for client in self._clients.values() if not client.asked), None) if full else None
            if not full or oldest:
                self._clients[request] = _Client(request, time.monotonic())
        if oldest:
            _break_off(oldest)
        if full and not oldest:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

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

    def _shakes_hands(self, client: _Client, context: ssl.SSLContext, address: Any) -> bool:
        """One that fails is counted and logged. Raises ``OSError`` for a client that says nothing, as those that only
        look whether a server listens, and for one that was ended meanwhile."""
        if not client.sock.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError("the client has said nothing")
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

    def asked(self) -> None:
        """The client of this thread is worked for: it has its place until it has its answer."""
        self._of_thread.client.asked = True

    def service_actions(self) -> None:
        """Called every half second: ends who has taken too long."""
        limited_log.summarise()
        with self._lock:
            late = [client for client in self._clients.values() if time.monotonic() > client.since + MOST_S]
        for client in late:
            _break_off(client)

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(ACCEPT_PAUSE_S)  # for lack of descriptors: do not try without a pause
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Clients that go while they are answered are no event; the default prints a traceback for each."""
        log.debug("metrics client failed", peer=client_address[0], exc_info=True)


def _name(address: Any) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why(error: OSError) -> str:
    """A handshake has failed."""
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
    """What is sent to a client. wsgiref prints a traceback for errors of TLS, not for a connection that has ended."""

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
        """Scrapes are no events."""


def _one_at_a_time(app: Any, asked: Callable[[], None]) -> Any:
    """Scrapes wait for each other: all of them together take no more of the interpreter than one."""
    rendering = Lock()

    def answer(environ: Any, start_response: Any) -> Any:
        asked()
        with rendering:
            return app(environ, start_response)

    return answer


class MetricsServer:
    """Serves ``/metrics`` in separate threads, with the process's memory and CPU time. ``tls``: for connections that
    come."""

    def __init__(self, config: MetricsConfig, board: StatusBoard, tls: TlsContext | None = None) -> None:
        self._config = config
        self._board = board
        self._tls = tls or TlsContext("metrics", config.tls_files)
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(StatusCollector(board))
        self._running: tuple[WSGIServer, Thread] | None = None

    def start(self) -> int:
        """Returns the port that is listened on. Raises ``InvalidInput`` when the address cannot be had."""
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
        server.set_app(_one_at_a_time(make_wsgi_app(self._registry), server.asked))
        thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
        thread.start()
        self._running = server, thread
        return server.server_port

    def stop(self) -> None:
        """Returns when the port is free again; does nothing when not started."""
        if self._running:
            server, thread = self._running
            self._running = None
            server.shutdown()
            server.server_close()
            thread.join()
