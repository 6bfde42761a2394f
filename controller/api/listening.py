"""Addresses that the API listens on: TCP ports and Unix sockets. ``OSError`` names the address that cannot be used."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import grpc

from signalbox.addresses import host_and_port


def add_tcp(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    """Make the server listen on every address of the host name, and return the address with its port.

    The result has the chosen port in place of port 0. Raises ``OSError`` if one of the addresses cannot be used."""
    _refuse_unusable(address)
    add = server.add_insecure_port if credentials is None else _secured(server, credentials)
    return f"{address.rpartition(':')[0]}:{_bound_port(add, address)}"


def add_socket(server: grpc.aio.Server, path: Path, mode: int) -> None:
    """Make the server listen on a Unix socket, without TLS. Raises ``OSError`` when the socket cannot be made."""
    _prepare_socket_path(path)
    umask = os.umask(0o077)  # no other user can connect before the socket has its mode
    try:
        _bound_port(server.add_insecure_port, f"unix:{path}")
    finally:
        os.umask(umask)
    path.chmod(mode)


def refuse_unusable(address: str) -> None:
    """Raise ``OSError`` if a server cannot listen on the address now."""
    if path := socket_path(address):
        _prepare_socket_path(path)
    else:
        _refuse_unusable(address)


def socket_path(address: str) -> Path | None:
    """Return the path in the address of a Unix socket; None for any other address."""
    return Path(address.removeprefix("unix:")) if address.startswith("unix:") else None


def proxy_mode(path: Path) -> int:
    """Return the file mode of HAProxy's socket.

    In a directory with the set-group-ID bit the socket gets the directory's group (inode(7)), and the group may open
    the socket. HAProxy's user should be the only member of the group. In other directories only the controller's user
    may open the socket."""
    return 0o660 if path.parent.stat().st_mode & stat.S_ISGID else 0o600


def _secured(server: grpc.aio.Server, credentials: grpc.ServerCredentials) -> Callable[[str], int]:
    return lambda address: server.add_secure_port(address, credentials)


def _bound_port(add: Callable[[str], int], address: str) -> int:
    try:
        return add(address)
    except RuntimeError as error:
        raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on {address}: {error}") from None


def _refuse_unusable(address: str) -> None:
    """Raise ``OSError`` when one of the addresses cannot be used.

    gRPC would not report the reason, and would skip unusable addresses of a name with several addresses."""
    host, port = host_and_port(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, _, _, where in dict.fromkeys(found):
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(where)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from None


def _prepare_socket_path(path: Path) -> None:
    """Make the directory of the socket, and remove an old socket on which no process listens.

    Raises ``OSError`` when another process listens there, or when the file is no socket."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)  # no other user can remove the socket
    except OSError as error:
        raise OSError(error.errno, f"cannot make {path.parent} for the API's socket: {error.strerror}") from None
    try:
        is_socket = stat.S_ISSOCK(path.stat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise OSError(errno.EEXIST, f"cannot listen on unix:{path}: the file exists and is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # connecting to a full queue would block, for ever if the listener is stopped
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass
    raise OSError(errno.EADDRINUSE, f"cannot listen on unix:{path}: another process listens there")
