"""Peer of a call: the client that made the call, as its connection identifies it.

In: gRPC's description of a direct connection, or header fields of a forwarded call. Out: the peer. The header fields
count only in calls from HAProxy (at ``api.proxy_socket``) and from members (at ``members.api``). HAProxy
(``controller/serving/haproxy.py``) and members delete such fields of a client's request before they set their own.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import unquote

from controller.api import certificate_names
from controller.api.errors import NoLeader
from controller.api.guard import Context
from controller.config import SocketRole
from signalbox.errors import Unauthenticated

PREFIX = "x-signalbox-"
ADDRESS, PORT, TLS = f"{PREFIX}address", f"{PREFIX}port", f"{PREFIX}tls"
CERTIFICATE = f"{PREFIX}certificate-bin"
"""Header field with the client's certificate in DER. gRPC decodes the base64 of fields whose name ends in ``-bin``."""
SOCKET = f"{PREFIX}socket"
"""Header field with the role of a caller at a Unix socket of a member. Its calls have none of the other fields."""
_YES, _NO = "1", "0"


@dataclass(frozen=True, slots=True)
class Peer:
    """Remote end of a connection, as far as the connection itself shows it.

    ``address``: text for people, empty if unknown. ``socket``: whether the peer uses a Unix socket. ``private``:
    whether third parties cannot read the connection. ``names``: names in the client certificate. ``certificate``: the
    certificate in DER. ``socket_role``: role that a member gives to callers at its Unix socket; set for calls that the
    member forwards."""

    address: str
    socket: bool = False
    private: bool = False
    names: tuple[str, ...] = ()
    certificate: bytes = field(default=b"", repr=False, compare=False)
    socket_role: SocketRole | None = None

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
        certificate=next((ssl.PEM_cert_to_DER_cert(pem.decode()) for pem in auth.get("x509_pem_cert", ())), b""),
    )


def direct_peer(context: Context) -> Peer:
    """Return the peer of a call without a proxy."""
    return peer_of(context.peer(), context.auth_context())


def proxied_peer(context: Context) -> Peer:
    """Return the peer of a call that HAProxy forwards.

    If a header field is missing, repeated or malformed, the peer has no address, and the gate refuses it."""
    given = [(key, value) for key, value in context.invocation_metadata() or () if key.startswith(PREFIX)]
    fields = dict(given)
    if len(fields) != len(given) or not fields.keys() <= {ADDRESS, PORT, TLS, CERTIFICATE}:
        return Peer("")
    try:
        ip, port = _unmapped(str(fields[ADDRESS])), int(fields[PORT])
        encrypted = fields[TLS] == _YES
        certificate = fields.get(CERTIFICATE)
        der = certificate if isinstance(certificate, bytes) else b""
        names = certificate_names.of(der) if der else ()
    except (KeyError, ValueError):
        return Peer("")
    shown = f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"
    return Peer(shown, private=encrypted or ip.is_loopback, names=names, certificate=der)


def forwarded_peer(names: Collection[str], is_leader: Callable[[], bool], context: Context) -> Peer:
    """Return the peer of a call that another member forwards.

    ``names``: names of members; the member's certificate must have one of them. Raises ``Unauthenticated`` for another
    certificate, and ``NoLeader`` when another controller may be active."""
    if not is_leader():
        raise NoLeader("the controller that was active may have been replaced; retry later")
    member = direct_peer(context)
    if not member.socket and not set(names).intersection(member.names):
        shown = ascii(", ".join(member.names))
        raise Unauthenticated(f"only members may call here; members.certificate_names has none of the names {shown}")
    roles = [value for key, value in context.invocation_metadata() or () if key == SOCKET]
    if not roles:
        return proxied_peer(context)
    try:
        (role,) = roles
        return Peer("unix", socket=True, private=True, socket_role=SocketRole(str(role)))
    except ValueError:
        return Peer("")


def fields_of(peer: Peer, socket_role: SocketRole) -> Iterator[tuple[str, str | bytes]]:
    """Yield the header fields from which ``forwarded_peer`` reconstructs the peer; none for an unknown peer.

    ``socket_role``: role of callers at the Unix sockets of this controller."""
    if peer.socket:
        yield SOCKET, socket_role.value
    elif peer.address:
        host, _, port = peer.address.rpartition(":")
        yield ADDRESS, host.strip("[]").partition("%")[0]
        yield PORT, port
        yield TLS, _YES if peer.private else _NO
        if peer.certificate:
            yield CERTIFICATE, peer.certificate


def _unmapped(address: str) -> IPv4Address | IPv6Address:
    """Return the address, with an IPv4-mapped IPv6 address as IPv4. Raises ``ValueError`` for an invalid address."""
    ip = ip_address(address)
    return getattr(ip, "ipv4_mapped", None) or ip
