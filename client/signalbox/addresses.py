"""Parse and check addresses of listeners: ``HOST:PORT`` or ``unix:PATH``."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from pydantic_core import PydanticCustomError

DEFAULT_ADDRESS = "127.0.0.1:50051"
"""Default address of the controller's API."""

MAX_PORT = 65535

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
    """Return ``text`` when it is an address of the API; raise ``PydanticCustomError`` with the right form otherwise."""
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
