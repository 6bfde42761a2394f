"""Notification of a service manager such as systemd (``sd_notify(3)``, ``Type=notify``).

In: the manager's socket, in the environment variable ``NOTIFY_SOCKET``. Out: one datagram per report; nothing without
the variable.
"""

from __future__ import annotations

import os
import socket

import structlog

log = structlog.get_logger(__name__)


def ready(status: str) -> None:
    """Report that the unit has started, with a ``status`` line for ``systemctl status``.

    Later calls replace the line."""
    if not (address := os.environ.get("NOTIFY_SOCKET")):
        return
    if address.startswith("@"):  # a name in the abstract namespace, which begins with a zero byte
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.connect(address)
            manager.sendall(f"READY=1\nSTATUS={status}".encode())
    except OSError as error:
        log.warning("cannot notify the service manager", status=status, why=str(error))
