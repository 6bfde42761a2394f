"""Addresses of hosts in the fabric: checks, ranges, name resolution, the kernel's form, and the address of this host.

Hosts have IPv4 addresses. Only this module of the client depends on the version of IP.
"""

from __future__ import annotations

import fcntl
import re
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network, ip_address
from itertools import product
from math import prod
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from signalbox.errors import InvalidInput, cut

VERSION = "IPv4"
ADDRESS_FORM = "must be an IPv4 address such as 10.0.1.2"
NETWORK_FORM = "must be an IPv4 prefix such as 10.0.1.0/24"
MAX_ADDRESS_CHARS = 15

Network = IPv4Network
"""Type of a network with addresses of hosts."""

NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"

_FAMILY = socket.AF_INET
_SIOCGIFADDR = 0x8915
"""Number of the ioctl that returns the first IPv4 address of an interface (netdevice(7))."""
_MAPPED = bytes(10) + b"\xff\xff"
"""Prefix of an IPv6 address that contains an IPv4 address (RFC 4291, 2.5.5.2)."""
_RANGE = re.compile(r"(0|[1-9]\d{0,2})(?:-(0|[1-9]\d{0,2}))?")
_LIKE_RANGES = re.compile(r"[\d-]+(\.[\d-]+){3}")


# ---- one address


def _host_address(text: str) -> str:
    """Return the text unchanged if it can be the address of a host; otherwise raise ``PydanticCustomError``.

    inet_pton(3) accepts only one spelling of an address: four decimal numbers without leading zeros."""
    try:
        address = socket.inet_pton(_FAMILY, text)
    except (OSError, ValueError):
        raise PydanticCustomError("address", ADDRESS_FORM) from None
    # Refused: unspecified, loopback, multicast and reserved (IANA's registry of special-purpose addresses).
    if address == b"\0\0\0\0" or address[0] == 127 or address[0] >= 224:
        raise PydanticCustomError("unicast", "must be the address of a host, not loopback, multicast or reserved")
    return text


HostAddress = Annotated[str, AfterValidator(_host_address)]
"""Address of a host as text. Each address has only one accepted spelling."""


def checked(endpoint: object) -> str:
    """Return ``endpoint``, as given by a program, as text. Raises ``InvalidInput`` if it is not an address."""
    try:
        socket.inet_pton(_FAMILY, str(endpoint))
    except (OSError, ValueError):
        raise InvalidInput.of("endpoint", f"{ADDRESS_FORM} (given: {cut(repr(endpoint))})") from None
    return str(endpoint)


def is_address(host: str) -> bool:
    """Return whether the text is an address, of any version of IP, and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    return ip_address(address).is_loopback


def usable(addresses: Iterable[str]) -> str | None:
    """Return the first of a host's addresses that a job spec can contain, an IPv4 address; None if there is none."""
    return next((address for address in addresses if ":" not in address), None)


def from_kernel(family: int, field: bytes) -> str | None:
    """Return the address in 16 bytes of a kernel message; None for an IPv6 address. ``family``: as for socket(2)."""
    if family == socket.AF_INET:
        return socket.inet_ntoa(field[:4])
    return socket.inet_ntoa(field[12:]) if field.startswith(_MAPPED) else None


def network_of(text: str) -> Network:
    """Return the network for a text such as ``10.0.1.5/16``. Raises ``ValueError``."""
    return Network(text, strict=False)


def resolved(host: str) -> list[str]:
    """Return the addresses that the resolver finds for a name, each once. Raises ``OSError`` or ``UnicodeError``."""
    answers = socket.getaddrinfo(host, None, _FAMILY, socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in answers))


# ---- ranges


def _address_range(text: str) -> str:
    """Return the text if it is an address whose numbers may be ranges; otherwise raise ``PydanticCustomError``."""
    parts = [_RANGE.fullmatch(part) for part in text.split(".")]
    if len(parts) != 4 or not all(part and int(part[1]) <= int(part[2] or part[1]) <= 255 for part in parts):
        hint = ""
        if any(map(str.isalpha, text)):
            hint = "; only signalbox run --hosts and signalbox jobs keep look names up"
        elif re.search(r"[,\s]", text):
            hint = "; several are a list, [10.0.1.1, 10.0.2.1]"
        raise PydanticCustomError("hosts", f"must be IPv4 addresses such as 10.0.1.2, 10.0.1.1-8 or 10.0.1-4.1-8{hint}")
    return text


AddressRange = Annotated[str, AfterValidator(_address_range)]
"""Address that may contain ranges (``10.0.1.1-8``)."""


def resembles_range(text: str) -> bool:
    """Return whether the text looks like an ``AddressRange``, even a wrong one, and not like a name."""
    return _LIKE_RANGES.fullmatch(text) is not None


def addresses_of_range(text: str) -> tuple[int, Iterator[str]]:
    """Return the number of addresses in an ``AddressRange``, and the addresses; the last number changes fastest."""
    parts = [_numbers(part) for part in text.split(".")]
    return prod(map(len, parts)), (".".join(map(str, numbers)) for numbers in product(*parts))


def _numbers(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


# ---- this host


def own_address(environ: Mapping[str, str], library: str, towards: Iterable[str]) -> str | None:
    """Return the address at which other hosts reach this program; None if it is not found.

    The result is the address of the interface that the library's environment variable selects, even a loopback address.
    Without such an interface, the result is the source address that the kernel chooses for the first host in
    ``towards`` that is not this host."""
    named = (NCCL, GLOO) if library == "nccl" else (GLOO, NCCL)
    for variable in named:
        for interface in _interfaces(environ.get(variable, ""), exact=variable == GLOO):
            if address := _of_interface(interface):
                return address
    return next((address for host in towards if (address := _source_address(host)) and not is_loopback(address)), None)


def _interfaces(text: str, exact: bool) -> Iterator[str]:
    """Yield the names of the interfaces that the value of a library's environment variable selects.

    Gloo's variable lists names; ``exact`` is true for Gloo. NCCL's variable lists prefixes of names; after ``=`` it
    lists names, and after ``^`` prefixes to exclude."""
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
    with socket.socket(_FAMILY, socket.SOCK_DGRAM) as asked:
        try:
            return socket.inet_ntoa(fcntl.ioctl(asked, _SIOCGIFADDR, request)[20:24])
        except OSError:
            return None


def _source_address(host: str) -> str | None:
    """Return the source address of packets from this host to another host; None if unknown. Sends no packet."""
    try:
        with socket.socket(_FAMILY, socket.SOCK_DGRAM) as asked:
            asked.connect((host, 9))
            return str(asked.getsockname()[0])
    except (OSError, UnicodeError):
        return None
