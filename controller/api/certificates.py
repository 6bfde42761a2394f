"""The certificates of gRPC: the server's, which can be replaced while it runs, and what a client proves itself with.

In: files. Out: gRPC's credentials of either side, and the metadata that carries a client's token.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import grpc

from controller.config import TlsFiles
from controller.tls import server_context
from signalbox.standard_input import read_small


class Certificates:
    """Of the server. ``credentials``: None without TLS. Raises ``InvalidInput`` with the problem of every file."""

    def __init__(self, files: TlsFiles | None) -> None:
        self._newest = self._in_use = _configuration(files)
        self.credentials: grpc.ServerCredentials | None = None
        if files and self._newest:
            needed = files.ca_certificates is not None
            # The stubs leave out that None means: no change.
            changed: Any = self._changed
            self.credentials = grpc.dynamic_ssl_server_credentials(self._newest, changed, needed)

    def prepare(self, files: TlsFiles | None) -> Callable[[], None]:
        """Reads the files; what is returned has new connections use them, from any thread. Raises ``InvalidInput``."""
        return partial(setattr, self, "_newest", _configuration(files))

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """gRPC asks before each handshake, in threads of its own. None: nothing has changed."""
        newest = self._newest
        if newest is self._in_use:
            return None
        self._in_use = newest
        return newest


def _configuration(files: TlsFiles | None) -> grpc.ServerCertificateConfiguration | None:
    if files is None:
        return None
    server_context("api", files)  # says what is wrong; gRPC does not
    authorities = read_small(files.ca_certificates) if files.ca_certificates else None
    pair = read_small(files.private_key), read_small(files.certificate)
    return grpc.ssl_server_certificate_configuration([pair], authorities)


# ---- clients
