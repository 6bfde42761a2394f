"""Peer of a call: the client at the other end of its connection.

In: gRPC's description of a direct connection; for calls that arrive at ``api.proxy_socket``, which only HAProxy may
open, the header fields that HAProxy sets. Out: the peer. HAProxy, as ``controller/serving/haproxy.py`` configures it,
deletes these header fields from a client's request before it sets them. At any other address the fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import unquote

from controller.api import certificate_names
from controller.api.guard import Context

PREFIX = "x-signalbox-"
ADDRESS, PORT, TLS = f"{PREFIX}address", f"{PREFIX}port", f"{PREFIX}tls"
CERTIFICATE = f"{PREFIX}certificate-bin"
"""Field with the client's certificate in DER. gRPC decodes the base64 of fields whose name ends in ``-bin``."""
_YES = "1"


@dataclass(frozen=True, slots=True)
class Peer:
    """Remote end of a connection, as far as the connection itself shows it.

    ``address``: text for people, empty when unknown. ``socket``: whether it uses a Unix socket. ``private``: whether
    nobody on the way can read what is sent. ``names``: names of the client certificate."""

    address: str
    socket: bool = False
    private: bool = False
    names: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """Address without the port; the same for all users of a Unix socket."""
        return self.address if self.socket else self.address.rpartition(":")[0]


def peer_of(name: str, auth: Mapping[str, Iterable[bytes]]) -> Peer:
    """Return the peer of a call.

    ``name``: the peer as gRPC writes it, such as ``ipv4:192.0.2.1:40000`` or ``unix:``. ``auth``: gRPC's
    ``auth_context``."""
    kind, _, address = unquote(name).partition(":")
    if kind in ("unix", "unix-abstract"):
        return Peer(address or kind, socket=True, private=True)
    if kind not in ("ipv4", "ipv6"):
        return Peer("")
    names = (*auth.get("x509_subject_alternative_name", ()), *auth.get("x509_common_name", ()))
    ip = _unmapped(address.rpartition(":")[0].strip("[]").partition("%")[0])
    return Peer(
        address,
        private=b"ssl" in auth.get("transport_security_type", ()) or ip.is_loopback,
        names=tuple(dict.fromkeys(name.decode(errors="replace") for name in names)),
    )


def proxied_peer(context: Context) -> Peer:
    """Return the peer of a call that HAProxy forwards.

    The peer has no address, and the gate refuses it, unless each header field occurs exactly once and in the form that
    HAProxy writes."""
    given = [(key, value) for key, value in context.invocation_metadata() or () if key.startswith(PREFIX)]
    fields = dict(given)
    if len(fields) != len(given) or not fields.keys() <= {ADDRESS, PORT, TLS, CERTIFICATE}:
        return Peer("")
    try:
        ip, port = _unmapped(str(fields[ADDRESS])), int(fields[PORT])
        encrypted = fields[TLS] == _YES
        certificate = fields.get(CERTIFICATE)
        names = certificate_names.of(certificate) if isinstance(certificate, bytes) else ()
    except (KeyError, ValueError):
        return Peer("")
    shown = f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"
    return Peer(shown, private=encrypted or ip.is_loopback, names=names)


def _unmapped(address: str) -> IPv4Address | IPv6Address:
    """Return the address; an IPv4 address that is mapped into IPv6 becomes IPv4. Raises ``ValueError``."""
    ip = ip_address(address)
    return getattr(ip, "ipv4_mapped", None) or ip
