"""Who is at the other end of a call.

In: what gRPC says of a connection that a client has with gRPC itself; header fields that HAProxy sets in calls that
arrive at ``api.proxy_socket``, which only HAProxy may open. Out: the peer. The configuration that
``controller/serving/haproxy.py`` writes deletes such fields from what a client sends before it sets them. At any other
address the fields mean nothing.
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
"""The client's certificate in DER. gRPC decodes the base64 of fields whose name ends so."""
_YES = "1"


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a connection, as far as the connection itself says. ``address``: for people, empty
    when it is not known. ``socket``: it came through a Unix socket. ``private``: no one on the way can read what is
    sent. ``names``: of the certificate that it has shown."""

    address: str
    socket: bool = False
    private: bool = False
    names: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """The address without the port; all users of a Unix socket have the same."""
        return self.address if self.socket else self.address.rpartition(":")[0]


def peer_of(name: str, auth: Mapping[str, Iterable[bytes]]) -> Peer:
    """Return the peer of a call. ``name``: as gRPC has it, such as ``ipv4:192.0.2.1:40000`` or ``unix:``. ``auth``:
    gRPC's ``auth_context``."""
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
    """Return who makes a call that HAProxy hands over. A peer without an address, whom the gate refuses, when HAProxy
    does not say it in exactly one field of each name, or in a form that is not HAProxy's."""
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
    """Return the IPv4 address of one that is mapped into IPv6. Raises ``ValueError``."""
    ip = ip_address(address)
    return getattr(ip, "ipv4_mapped", None) or ip
