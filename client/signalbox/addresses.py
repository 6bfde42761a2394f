"""Parse and check addresses at which servers listen: ``HOST:PORT`` or ``unix:PATH``.

Clients of several controllers take a list of addresses: ``HOST:PORT,HOST:PORT``."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from pydantic_core import PydanticCustomError

DEFAULT_ADDRESS = "127.0.0.1:50051"
"""Default address of the controller's API."""

MAX_PORT = 65535

MAX_ADDRESSES = 8
"""Largest number of addresses in a list."""

MAX_SOCKET_PATH = 107
"""Largest length of a Unix socket's path in bytes on Linux (unix(7))."""


def host_and_port(address: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; an IPv6 host is in brackets. Raises ``ValueError`` for any other text."""
    host, _, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not host or (not bracketed and set("[]:") & set(host)) or not port.isascii() or not port.isdigit():
        raise ValueError("this is neither")
    if int(port) > MAX_PORT:
        raise ValueError(f"ports end at {MAX_PORT}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether ``host`` resolves to loopback addresses only. Raises ``OSError`` when it does not resolve."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return all(ip_address(address[0]).is_loopback for *_, address in found)


def listen_address(text: str) -> str:
    """Return ``text`` unchanged if it is one address of an API.

    If not, raise ``PydanticCustomError`` with the right form."""
    if text.startswith("unix:"):
        if not 0 < len(text.removeprefix("unix:").encode()) <= MAX_SOCKET_PATH:
            raise PydanticCustomError("address", "a socket's path has 1 to {most} bytes", {"most": MAX_SOCKET_PATH})
        return text
    try:
        host_and_port(text)
    except ValueError as error:
        message = "must be HOST:PORT or unix:PATH; {why}"
        raise PydanticCustomError("address", message, {"why": str(error)}) from None
    return text


def listed(text: str) -> tuple[str, ...]:
    """Return the addresses in a comma-separated list.

    A single ``unix:PATH`` is returned whole, because its path may contain commas."""
    single = text.startswith("unix:") and ":" not in text.partition(",")[2]
    return (text,) if single else tuple(text.split(","))


def api_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses in a text of the form ``HOST:PORT[,HOST:PORT...]`` or ``unix:PATH``.

    The addresses are those of the controllers' APIs. Raises ``PydanticCustomError`` for a wrong text; its message names
    the first mistake and the right form."""
    found = listed(text)
    if len(found) == 1:
        return (listen_address(text),)
    if len(found) > MAX_ADDRESSES:
        message = "at most {most} addresses are allowed, one per controller (given: {number})"
        raise PydanticCustomError("addresses", message, {"most": MAX_ADDRESSES, "number": len(found)})
    seen: set[tuple[str, int]] = set()
    for number, address in enumerate(found, 1):
        if why := _why_not_in_list(address, seen):
            message = "address {number} of {all} {why}; a list has the form HOST:PORT,HOST:PORT"
            raise PydanticCustomError("addresses", message, {"number": number, "all": len(found), "why": why})
    return found


def _why_not_in_list(address: str, seen: set[tuple[str, int]]) -> str:
    """Return why an address cannot be in a list; empty if it can.

    ``seen``: host and port of each earlier address in the list. If the address is accepted, the function adds its host
    and port to this set."""
    if not address:
        return "is empty"
    if address.startswith("unix:"):
        return f"('{address}') is a Unix socket; a list may have only HOST:PORT"
    if any(map(str.isspace, address)):
        return f"('{address}') has a space"
    try:
        host, port = host_and_port(address)
    except ValueError:
        return f"('{address}') is not HOST:PORT with a port up to {MAX_PORT}"
    if (place := (host.lower(), port)) in seen:
        return f"('{address}') appears twice"
    seen.add(place)
    return ""
