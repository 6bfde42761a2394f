"""Who is at the other end of a connection that a client has with gRPC itself.

In: gRPC's name for the connection and what TLS says of it. Out: the peer. Of calls that HAProxy hands over
``proxied`` says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote


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
    encrypted = b"ssl" in auth.get("transport_security_type", ())
    return Peer(
        address,
        private=encrypted or _is_loopback(address),
        names=tuple(dict.fromkeys(name.decode(errors="replace") for name in names)),
    )


def _is_loopback(address: str) -> bool:
    ip = ip_address(address.rpartition(":")[0].strip("[]").partition("%")[0])
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback
