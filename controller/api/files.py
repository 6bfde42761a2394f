"""Files of the API that SIGHUP reloads: certificate, certificate authorities, and identities of callers.

In: the configuration. Out: the contents in force. The files can be read before the server exists; a running server is
notified of new identities.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import structlog

from controller.api.identities import Identities
from controller.config import ApiConfig, TlsFiles
from controller.tls import server_context
from signalbox.errors import InvalidInput
from signalbox.standard_input import read_small

log = structlog.get_logger(__name__)


class ApiFiles:
    """Contents of the API's files.

    ``credentials``: TLS credentials of the server, None without TLS. ``identities``: None when no file is configured.
    ``replaced``: called with each new value of ``identities``, in the thread that replaces it. The constructor and the
    two ``prepare`` methods raise ``InvalidInput`` for a file that cannot be read."""

    def __init__(self, config: ApiConfig) -> None:
        self._newest = self._in_use = _certificates(config.tls_files)
        self.credentials: grpc.ServerCredentials | None = None
        if self._newest:
            # At runtime gRPC takes None for "no change"; the type stubs do not allow it.
            changed: Any = self._changed
            needed = config.ca_certificates is not None
            self.credentials = grpc.dynamic_ssl_server_credentials(self._newest, changed, needed)
        self.identities = _identities(config.tokens)
        self.replaced: Callable[[Identities | None], None] = lambda _: None

    def prepare_certificates(self, config: ApiConfig) -> Callable[[], None]:
        """Read the files and return a function that applies them to new connections, callable from any thread."""
        return partial(setattr, self, "_newest", _certificates(config.tls_files))

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return a new configuration, or None when nothing has changed.

        gRPC calls this before each handshake, in threads of its own."""
        newest = self._newest
        if newest is self._in_use:
            return None
        self._in_use = newest
        return newest

    def prepare_identities(self, config: ApiConfig) -> Callable[[], dict[str, object]]:
        """Read the file and return a function that puts it in force, callable from any thread.

        That function returns the differences, for the log."""
        new, before = _identities(config.tokens), self.identities

        def take() -> dict[str, object]:
            self.identities = new
            self.replaced(new)
            return new.differences(before) if new and before else {}

        return take


def _certificates(files: TlsFiles | None) -> grpc.ServerCertificateConfiguration | None:
    if files is None:
        return None
    server_context("api", files)  # reports what is wrong, which gRPC does not
    authorities = read_small(files.ca_certificates) if files.ca_certificates else None
    pair = read_small(files.private_key), read_small(files.certificate)
    return grpc.ssl_server_certificate_configuration([pair], authorities)


def _identities(tokens: Path | None) -> Identities | None:
    if tokens is None:
        return None
    try:
        found = Identities.load(tokens)
    except InvalidInput as error:
        raise error.within("api.tokens") from None
    if found.quotas_for_nobody:
        log.warning("quotas name tenants without tokens", file=str(tokens), tenants=found.quotas_for_nobody)
    return found
