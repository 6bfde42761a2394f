"""Files of the API that SIGHUP reloads: certificates, certificate authorities, and identities of callers.

The files can be read before the server exists; a running server is notified of new identities.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import structlog

from controller.api.identities import Identities
from controller.config import ApiConfig, TlsFiles
from controller.tls import server_context
from signalbox.errors import InvalidInput
from signalbox.files import read_small

log = structlog.get_logger(__name__)


class Certificates:
    """Certificate and key of this controller, and the authorities of its peers, which SIGHUP reloads.

    ``section``: section of the configuration. The constructor and ``prepare`` raise ``InvalidInput`` for a file that
    cannot be read."""

    def __init__(self, section: str, files: TlsFiles | None) -> None:
        self._section = section
        self.newest = _contents(section, files)
        """Contents that new connections use; None without TLS."""

    def prepare(self, files: TlsFiles | None) -> Callable[[], None]:
        """Read the files, and return a function that makes new connections use them; any thread may call it."""
        return partial(setattr, self, "newest", _contents(self._section, files))

    def for_server(self) -> grpc.ServerCredentials | None:
        """Return credentials for one listener; None without TLS.

        Each new connection uses the contents that ``newest`` has at this time. If authorities are configured, clients
        must present a certificate."""
        if self.newest is None:
            return None
        in_use = self.newest

        def changed() -> grpc.ServerCertificateConfiguration | None:
            """Return the contents if they have changed since the last call of this method, else None.

            gRPC's threads call this before each handshake."""
            nonlocal in_use
            if self.newest is in_use or self.newest is None:
                return None
            in_use = self.newest
            return in_use.for_server()

        # At runtime gRPC takes None for "no change"; the type stubs do not allow it.
        fetcher: Any = changed
        return grpc.dynamic_ssl_server_credentials(in_use.for_server(), fetcher, in_use.authorities is not None)


class TlsContents(NamedTuple):
    """Contents of the files for TLS, in PEM."""

    private_key: bytes
    certificate: bytes
    authorities: bytes | None

    def for_server(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(self.private_key, self.certificate)], self.authorities)

    def for_client(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.authorities, self.private_key, self.certificate)


class ApiFiles:
    """Contents of the API's files.

    ``certificates``: TLS of the listeners. ``identities``: None when no file is configured. ``replaced``: called with
    each new value of ``identities``, in the thread that replaces it. The constructor and ``prepare_identities`` raise
    ``InvalidInput`` for a file that cannot be read."""

    def __init__(self, config: ApiConfig) -> None:
        self.certificates = Certificates("api", config.tls_files)
        self.identities = _identities(config.tokens)
        self.replaced: Callable[[Identities | None], None] = lambda _: None

    def prepare_identities(self, config: ApiConfig) -> Callable[[], dict[str, object]]:
        """Read the file, and return a function that puts it in force. Any thread may call the function.

        The function returns the differences to the identities in force before, for the log."""
        new, before = _identities(config.tokens), self.identities

        def apply() -> dict[str, object]:
            self.identities = new
            self.replaced(new)
            return new.differences(before) if new and before else {}

        return apply


def _contents(section: str, files: TlsFiles | None) -> TlsContents | None:
    if files is None:
        return None
    server_context(section, files)  # reports what is wrong, which gRPC does not
    authorities = read_small(files.ca_certificates) if files.ca_certificates else None
    return TlsContents(read_small(files.private_key), read_small(files.certificate), authorities)


def _identities(tokens: Path | None) -> Identities | None:
    if tokens is None:
        return None
    try:
        found = Identities.load(tokens)
    except InvalidInput as error:
        raise error.within("api.tokens") from None
    if found.quotas_for_nobody:
        log.warning("tenants have quotas but no tokens", file=str(tokens), tenants=found.quotas_for_nobody)
    return found
