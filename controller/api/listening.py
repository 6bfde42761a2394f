"""The addresses that the API listens on: TCP ports and Unix sockets.

In: addresses as in the configuration. Out: sockets that listen, or ``OSError`` that names the address.
"""

from __future__ import annotations

import errno
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

from controller.api.relay.accepting import Listener
from controller.config import ApiConfig
from signalbox.addresses import host_and_port

BACKLOG = 1024


def bind(config: ApiConfig, private: Path) -> list[Listener]:
    """Listen on all addresses except those where HAProxy listens, and return them with the ports that were chosen for
    port 0. gRPC's own sockets go into the directory ``private``. Raises ``OSError`` when an address cannot be used;
    then none is listened on."""
    bound: list[Listener] = []
    try:
        for address in config.listen:
            path = socket_path(address)
            if not path and config.proxy_socket:
                continue  # HAProxy listens there
            if path:
                backend = str(private / "unix")
                bound.append(Listener(_unix(path, int(config.socket_mode, 8)), address, backend, True, False))
            else:
                backend, has_tls = str(private / "tcp"), config.tls_files is not None
                bound += [Listener(sock, name, backend, False, has_tls) for name, sock in _tcp(address)]
    except BaseException:
        release(bound)
        raise
    return bound


def release(listeners: Iterable[Listener]) -> None:
    """Listen no more; files of sockets go."""
    for listener in listeners:
        listener.sock.close()
        if path := socket_path(listener.address):
            path.unlink(missing_ok=True)


def socket_path(address: str) -> Path | None:
    """Of a Unix socket."""
    return Path(address.removeprefix("unix:")) if address.startswith("unix:") else None


def _tcp(address: str) -> list[tuple[str, socket.socket]]:
    """On every address that the host name has."""
    host, port = host_and_port(address)
    listening: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, _, _, where in dict.fromkeys(found):
            sock = socket.socket(family, kind)
            listening.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
            sock.bind((where[0], port or where[1], *where[2:]))
            sock.listen(BACKLOG)
            port = sock.getsockname()[1]
    except OSError as error:
        for sock in listening:
            sock.close()
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from None
    return [(f"{address.rpartition(':')[0]}:{port}", sock) for sock in listening]


def make_room(path: Path) -> None:
    """Remove a socket that nobody listens on, and make the directory. Raises ``OSError`` when the path is in use."""
    _make_directory(path.parent)
    _remove_stale(path)


def proxy_mode(path: Path) -> int:
    """The mode of HAProxy's socket. In a directory with the set-group-ID bit, whose group the socket gets (inode(7)),
    that group may open it: it should have HAProxy's user alone. Else only the controller's user may."""
    return 0o660 if path.parent.stat().st_mode & stat.S_ISGID else 0o600


def _unix(path: Path, mode: int) -> socket.socket:
    make_room(path)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(str(path))
        path.chmod(mode)  # nobody can connect before it listens
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on unix:{path}: {error.strerror}") from None
    return sock


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)  # whatever the umask: nobody else removes the socket
    except OSError as error:
        raise OSError(error.errno, f"cannot make {directory} for the API's socket: {error.strerror}") from None


def _remove_stale(path: Path) -> None:
    """Raises ``OSError`` when another process listens there, or the file is no socket."""
    try:
        is_socket = stat.S_ISSOCK(path.stat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise OSError(errno.EEXIST, f"cannot listen on unix:{path}: the file exists and is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(errno.EADDRINUSE, f"cannot listen on unix:{path}: another process does")
