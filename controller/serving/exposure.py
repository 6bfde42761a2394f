"""Exposure of the controller, derived from its configuration: which callers can reach each listener with which role.

Out: a sentence per listener, for ``signalbox serve --check``; a problem for each API address that is open to the
network without TLS or identities, unless the configuration allows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from controller.config import ApiConfig, Config, SocketRole, TlsFiles
from signalbox.addresses import host_and_port, is_loopback
from signalbox.errors import FieldProblem


def problems(api: ApiConfig) -> Iterator[FieldProblem]:
    """Yield a problem for each API address that is open to the network without TLS or identities.

    Other checks report an address whose host cannot be resolved."""
    if api.insecure:
        return
    missing = []
    if not api.tls_files:
        missing.append("api.certificate and api.private_key, for TLS")
    if not api.ca_certificates and not api.tokens:
        missing.append("api.ca_certificates or api.tokens, which say who may call")
    for i, address in _open_addresses(api) if missing else ():
        why = f"{address} can be reached from the network. Missing: {'; '.join(missing)}"
        yield FieldProblem(f"api.listen[{i}]", f"{why}. To allow that, set api.insecure = true")


def unguarded(api: ApiConfig) -> Iterator[str]:
    """Yield a sentence for each address that the network can reach without HAProxy."""
    for _, address in _open_addresses(api) if api.proxy_socket is None else ():
        yield f"{address} can be reached from the network without HAProxy before it: set api.proxy_socket"


def _open_addresses(api: ApiConfig) -> Iterator[tuple[int, str]]:
    for i, address in enumerate(api.listen):
        if not address.startswith("unix:") and _reach(host_and_port(address)[0]) == "network":
            yield i, address


def who_may(config: Config) -> Iterator[str]:
    """Yield a line per listener: its address, and what callers may do there."""
    for address in config.api.listen:
        yield f"API {address}: {_api(config.api, address)}"
    if config.members.api:
        yield f"members {config.members.api}: {_members(config)}, while this controller is active"
    yield f"metrics {config.metrics.host}:{config.metrics.port}: {_metrics(config)}"
    yield f"OpenFlow {config.openflow.host}:{config.openflow.port}: {_openflow(config)}"


def _api(api: ApiConfig, address: str) -> str:
    if address.startswith("unix:"):
        return _socket(api)
    through = f"through HAProxy at {api.proxy_socket}: " if api.proxy_socket else ""
    return f"{through}{_tcp(api, _local(host_and_port(address)[0]))}"


def _tcp(api: ApiConfig, local: bool) -> str:
    tls = api.tls_files
    if api.tokens is None:
        return f"{_connecting(local, tls)} is an operator{'' if tls or local else ', and others can read what is sent'}"
    if tls and tls.ca_certificates:
        return f"{_connecting(local, tls)} has the role that {api.tokens} gives to it or to its token"
    if tls or local:
        return f"callers with a token of {api.tokens} have the token's role"
    return "no caller: tokens are accepted only through TLS, a Unix socket or loopback"


def _socket(api: ApiConfig) -> str:
    everybody = int(api.socket_mode, 8) & 0o002
    users = f"{'any program on this machine' if everybody else 'users who may open it'} (mode {api.socket_mode})"
    with_token = f"callers with a token of {api.tokens} with the token's role" if api.tokens else ""
    if api.socket_role is SocketRole.NONE:
        return with_token or "no caller: api.socket_role is 'none', and there is no api.tokens"
    return f"{users} as {api.socket_role}{', ' if with_token else ''}{with_token}"


def _members(config: Config) -> str:
    members = config.members
    if str(members.api).startswith("unix:"):
        return "users who may open it can pose as any caller"
    names = ", ".join(members.certificate_names or ())
    return f"any client with a certificate for {names} that {members.ca_certificates} signed can pose as any caller"


def _metrics(config: Config) -> str:
    return f"{_connecting(_local(config.metrics.host), config.metrics.tls_files)} can read them"


def _openflow(config: Config) -> str:
    return f"{_connecting(_local(config.openflow.host), config.openflow.tls_files)} can act as a switch"


def _connecting(local: bool, tls: TlsFiles | None) -> str:
    if tls and tls.ca_certificates:
        return f"any client with a certificate that {tls.ca_certificates} signed"
    where = "any program on this machine" if local else "ANYONE who reaches it"
    return f"{where}{', through TLS,' if tls else ''}"


def _local(host: str) -> bool:
    return _reach(host) == "machine"


def _reach(host: str) -> Literal["machine", "network", "unknown"]:
    try:
        return "machine" if is_loopback(host) else "network"
    except OSError:
        return "unknown"
