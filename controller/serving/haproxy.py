"""Configuration of HAProxy 2.6, which is in front of the API (``api.proxy_socket``).

In: the API's configuration. Out: the text of ``haproxy.cfg``. HAProxy terminates TLS, limits clients by address, and
forwards whole requests with header fields that identify the caller (``controller/api/peers.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from controller.api import peers
from controller.config import ApiConfig
from signalbox.addresses import host_and_port
from signalbox.errors import FieldProblem, InvalidInput

STREAMS = (
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.",
    "/signalbox.v1.ControllerService/Watch",
    "/signalbox.v1.JobService/Watch",
)
"""Prefixes of the paths of methods that answer with a stream."""
DIALOGUES = "/grpc.reflection."
"""Prefix of the paths of methods with a stream of requests, for whose end HAProxy need not wait."""
RATE_S = 10
"""Seconds over which the rate of connections is counted."""
NEARLY_FULL = 3 / 4
"""Fraction of ``max_connections``. When more are in use, each client may have only few connections."""
FEW = 1 / 32
"""Largest fraction of ``max_connections`` that one client may have when more than ``NEARLY_FULL`` are in use."""
OWN_CONNECTIONS = 64
"""Number of connections of HAProxy itself, in addition to connections of clients."""
BUFFER, REWRITES = 16 << 10, 12 << 10
"""Number of bytes of a request that HAProxy buffers, and number of bytes for the header fields that it adds. The
longest field is a certificate in base64, of which gRPC accepts at most 8 kB before encoding. If the header fields do
not fit, the call ends with status 500."""
KNOWN_CLIENTS = "100k"
"""Largest number of client addresses that are remembered, at 100 bytes each. With more, the oldest are forgotten."""
LARGE_OF_CLIENT, LARGE = 8, 16
"""Largest number of concurrent requests above HAProxy's buffer size, of one address and of all addresses. Each may
occupy ``max_message_bytes`` in the controller's memory. ``LARGE`` applies to streams of requests too."""
CONNECTION_STREAMS = 128
"""Largest number of HTTP/2 streams of one connection. HAProxy begins all calls that it has read before it refuses the
first one, and each call needs a buffer. Without this limit, one address could make HAProxy use 20 GB."""
PATIENCE = 4
"""Multiple of ``max_client_calls_per_s``. A client with more calls loses its connections and gets no new ones, since
refusing calls could otherwise take all of HAProxy's time."""
TOO_MANY = 8
"""gRPC status code RESOURCE_EXHAUSTED."""
AWAY = 14, "the controller does not answer HAProxy: it is stopped, or too busy; retry later"
ERRORS = {
    400: (13, "HAProxy does not understand the request"),
    408: (4, "the request did not arrive in time (api.silent_s)"),
    500: (13, "HAProxy has no room for the header fields of the request"),
    502: AWAY,
    503: AWAY,
    504: AWAY,
}
"""gRPC status and message that replace each HTTP error of HAProxy itself.

HAProxy's default error pages have a body. Because of the body, programs with grpcio 1.83 abort, or get the status
UNKNOWN instead of UNAVAILABLE."""
RELOADED_S = 180
"""Largest number of seconds for which connections outlive a reload of HAProxy; longer than any call except watches.

The old process of HAProxy serves these connections. The old process counts clients separately from the new process, and
uses the old certificates."""


def configuration(api: ApiConfig) -> str:
    """Return the configuration text. Raises ``InvalidInput`` for settings that HAProxy cannot implement."""
    InvalidInput.refuse(problems(api))
    return "\n".join([*_global(api), *_frontend(api), *_backends(api)]) + "\n"


def problems(api: ApiConfig) -> Iterator[FieldProblem]:
    """Yield the settings that a HAProxy in front of this API cannot implement."""
    if api.proxy_socket is None:
        yield FieldProblem("api.proxy_socket", "is missing: the socket at which HAProxy forwards calls")
    elif unfit := _unfit(api.proxy_socket):
        yield FieldProblem("api.proxy_socket", unfit)
    tcp = [(i, address) for i, address in enumerate(api.listen) if not address.startswith("unix:")]
    if not tcp:
        yield FieldProblem("api.listen", "has no address of the form HOST:PORT, for HAProxy to listen at")
    for i, address in tcp:
        if host_and_port(address)[1] == 0:
            yield FieldProblem(f"api.listen[{i}]", f"{address}: HAProxy needs a port other than 0")
    if files := api.tls_files:
        for name, path in zip(api.belong_together, files[:2], strict=True):
            if unfit := _unfit(path):
                yield FieldProblem(f"api.{name}", unfit)
        if files.ca_certificates and (unfit := _unfit(files.ca_certificates)):
            yield FieldProblem("api.ca_certificates", unfit)
        if files.private_key not in (files.certificate, Path(f"{files.certificate}.key")):
            yield FieldProblem(
                "api.private_key", f"HAProxy finds a key only in the certificate's file or in {files.certificate}.key"
            )


def _unfit(path: Path) -> str | None:
    if path.is_absolute() and all(char.isascii() and (char.isalnum() or char in "/._-+@:") for char in str(path)):
        return None
    return f"{path}: HAProxy needs an absolute path of ASCII letters, digits and /._-+@:"


def _global(api: ApiConfig) -> Iterator[str]:
    yield "# Made by: signalbox serve --print-haproxy"
    yield "global"
    yield "    user haproxy"
    yield "    group haproxy"
    yield "    log stderr format raw daemon info"
    yield "    nbthread 1"
    yield f"    maxconn {api.max_connections + OWN_CONNECTIONS}"
    yield f"    tune.h2.max-concurrent-streams {CONNECTION_STREAMS}"
    yield f"    tune.bufsize {BUFFER + REWRITES}"
    yield f"    tune.maxrewrite {REWRITES}"
    yield f"    hard-stop-after {RELOADED_S}s"
    yield "    ssl-default-bind-options ssl-min-ver TLSv1.2"
    yield ""
    yield "defaults"
    yield "    mode http"
    yield "    # Only failed connections and calls have a line."
    yield "    log global"
    yield "    option httplog"
    yield "    option dontlognull"
    yield "    option dontlog-normal"
    yield "    timeout connect 5s"
    yield "    # For clients that do not read, that are silent, or that stop in a handshake."
    yield f"    timeout client {_ms(api.stalled_s)}"
    yield "    # A watch may be silent for as long as nothing happens."
    yield "    timeout server 24d"
    yield "    # The first call of a connection."
    yield f"    timeout queue {_ms(2 * api.silent_s)}"
    yield f"    timeout http-request {_ms(api.silent_s)}"
    yield "    timeout http-keep-alive 300s"
    yield "    option clitcpka"
    yield "    clitcpka-idle 30s"
    yield "    clitcpka-intvl 10s"
    yield "    clitcpka-cnt 3"
    yield ""


def _frontend(api: ApiConfig) -> Iterator[str]:
    burst = round(max(api.max_client_connections, RATE_S * api.max_client_connections_per_s))
    yield "frontend api"
    for address in api.listen:
        if not address.startswith("unix:"):
            yield f"    bind {_bind_address(address)} proto h2{_tls(api)}"
    yield f"    maxconn {api.max_connections}"
    yield "    tcp-request connection track-sc0 src table connections"
    yield f"    tcp-request connection reject if {{ sc0_conn_cur(connections) gt {api.max_client_connections} }}"
    yield f"    tcp-request connection reject if {{ sc0_conn_rate(connections) gt {burst} }}"
    full, few = round(NEARLY_FULL * api.max_connections), max(1, round(FEW * api.max_connections))
    yield f"    tcp-request connection reject if {{ fe_conn gt {full} }} {{ sc0_conn_cur(connections) gt {few} }}"
    patience = PATIENCE * round(api.max_client_calls_per_s)
    yield f"    tcp-request connection reject if {{ sc0_gpc1_rate(connections) gt {patience} }}"
    yield "    # Remove these fields from the client's request: HAProxy sets them."
    yield f"    http-request del-header {peers.PREFIX} -m beg"
    yield f"    http-request set-header {peers.ADDRESS} %[src]"
    yield f"    http-request set-header {peers.PORT} %[src_port]"
    yield f"    http-request set-header {peers.TLS} %[ssl_fc]"
    yield f"    http-request set-header {peers.CERTIFICATE} %[ssl_c_der,base64] if {{ ssl_c_used }}"
    yield f"    acl streams path_beg {' '.join(STREAMS)}"
    yield "    http-request track-sc1 src table calls if !streams"
    yield "    http-request track-sc1 src table streams if streams"
    per_s = round(api.max_client_calls_per_s)
    yield "    # A client that continues in spite of refusals loses its connections, and gets no others meanwhile."
    yield "    http-request sc-inc-gpc1(0)"
    yield f"    http-request reject if {{ sc0_gpc1_rate(connections) gt {patience} }}"
    yield from _refused("calls per second (api.max_client_calls_per_s)", f"{{ sc0_gpc0_rate(connections) gt {per_s} }}")
    yield from _refused(
        "calls at once (api.max_client_calls)", f"!streams {{ sc1_conn_cur(calls) gt {api.max_client_calls} }}"
    )
    yield from _refused(
        "streams at once (api.max_client_streams)", f"streams {{ sc1_conn_cur(streams) gt {api.max_client_streams} }}"
    )
    for status, (code, message) in ERRORS.items():
        yield f'    http-error status {status} hdr grpc-status {code} hdr grpc-message "{message}"'
    yield "    http-after-response set-header content-type application/grpc unless { res.hdr(content-type) -m found }"
    yield "    http-request sc-inc-gpc0(0)"
    yield f"    acl dialogues path_beg {DIALOGUES}"
    yield "    # Wait until the request is complete or fills the buffer."
    yield f"    http-request wait-for-body time {_ms(api.silent_s)} unless dialogues"
    yield "    # The controller waits for the rest of the request, for as long again."
    yield "    acl whole internal.htx.has_eom"
    yield "    http-request track-sc2 src table large unless whole"
    yield from _refused(
        f"large requests at once (more than {LARGE_OF_CLIENT})",
        f"!whole {{ sc2_conn_cur(large) gt {LARGE_OF_CLIENT} }}",
    )
    yield "    use_backend controller_dialogues if dialogues"
    yield "    use_backend controller_large unless whole"
    yield "    default_backend controller"
    yield ""


def _refused(what: str, condition: str) -> Iterator[str]:
    message = f"too many {what} from this address; retry later"
    fields = f'hdr grpc-status {TOO_MANY} hdr grpc-message "{message}"'
    yield f"    http-request return status 200 {fields} if {condition}"


def _backends(api: ApiConfig) -> Iterator[str]:
    for name, limit in (("", ""), ("_dialogues", f" maxconn {LARGE}"), ("_large", f" maxconn {LARGE}")):
        yield f"backend controller{name}"
        yield f"    server controller unix@{api.proxy_socket} proto h2{limit}"
        yield ""
    for name, kept in (
        ("connections", f"conn_cur,conn_rate({RATE_S}s),gpc0_rate(1s),gpc1_rate(1s)"),
        ("calls", "conn_cur"),
        ("streams", "conn_cur"),
        ("large", "conn_cur"),
    ):
        yield f"backend {name}"
        yield f"    stick-table type ipv6 size {KNOWN_CLIENTS} expire {2 * RATE_S}s store {kept}"


def _bind_address(address: str) -> str:
    host, port = host_and_port(address)
    return f"ipv6@[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tls(api: ApiConfig) -> str:
    if not api.tls_files:
        return ""
    authorities = api.tls_files.ca_certificates
    verified = f" ca-file {authorities} verify required" if authorities else ""
    return f" ssl crt {api.tls_files.certificate} alpn h2{verified}"


def _ms(seconds: float) -> str:
    return f"{max(1, round(1000 * seconds))}ms"
