"""Find the IPv4 address at which a rank's peers reach this host."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address

from signalbox.errors import InvalidInput, cut

NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
_SIOCGIFADDR = 0x8915
"""Request for the first address of an interface (netdevice(7)); AF_INET only."""


def own_address(environ: Mapping[str, str], library: str, towards: Iterable[str]) -> str | None:
    """Return the address of the interface that the library is set to use, else the address towards other hosts.

    The address towards other hosts is the source address that the kernel chooses for the first host in ``towards`` that
    is not this host. A loopback address is returned only when the library is set to use it."""
    named = (NCCL, GLOO) if library == "nccl" else (GLOO, NCCL)
    for variable in named:
        for interface in _interfaces(environ.get(variable, ""), exact=variable == GLOO):
            if address := _of_interface(interface):
                return address
    return next((address for host in towards if (address := _towards(host)) and not is_loopback(address)), None)


def checked(endpoint: object) -> str:
    """Return a program's ``endpoint`` as text; raise ``InvalidInput`` unless it is an IPv4 address."""
    try:
        return str(IPv4Address(str(endpoint)))
    except ValueError:
        raise InvalidInput.of("endpoint", f"must be an IPv4 address (given: {cut(repr(endpoint))})") from None


def is_loopback(address: str) -> bool:
    return address.startswith("127.")


def _interfaces(text: str, exact: bool) -> Iterator[str]:
    """Yield the interfaces that a setting selects.

    Gloo's setting lists names. NCCL's setting lists prefixes; after ``=`` it lists names, and after ``^`` prefixes to
    exclude."""
    rule, names = ("=", text) if exact else (text[:1], text.lstrip("^="))
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    there = [name for _, name in socket.if_nameindex()] if wanted else []
    if rule == "=":
        yield from (name for name in wanted if name in there)
    else:
        begins = tuple(wanted)
        yield from (name for name in there if name.startswith(begins) != (rule == "^"))


def _of_interface(name: str) -> str | None:
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            return socket.inet_ntoa(fcntl.ioctl(asked, _SIOCGIFADDR, request)[20:24])
        except OSError:
            return None


def _towards(host: str) -> str | None:
    """Return this host's source address towards another host; send nothing."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.connect((host, 9))
            return str(asked.getsockname()[0])
    except (OSError, UnicodeError):
        return None
