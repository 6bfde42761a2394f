"""Addresses of listeners: ``HOST:PORT`` or ``unix:PATH``."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from pydantic_core import PydanticCustomError

DEFAULT_ADDRESS = "127.0.0.1:50051"
"""Of the API, for its clients."""

MAX_PORT = 65535

MAX_SOCKET_PATH = 107
"""Bytes of a Unix socket's path, as Linux has them (unix(7))."""


def host_and_port(address: str) -> tuple[str, int]:
    """``HOST:PORT``, an IPv6 host in brackets. Raises ``ValueError``."""
    host, _, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not host or (not bracketed and set("[]:") & set(host)) or not port.isascii() or not port.isdigit():
        raise ValueError("this is neither")
    if int(port) > MAX_PORT:
        raise ValueError(f"ports end at {MAX_PORT}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to it. Raises ``OSError`` when it has no address."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return all(ip_address(address[0]).is_loopback for *_, address in found)


def listen_address(text: str) -> str:
    """An address of the API, as it is. Raises ``PydanticCustomError`` with what would be right."""
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
