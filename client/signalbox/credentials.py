"""Credentials of a client: files with its identity and with the authorities that it trusts.

``Credentials`` makes a gRPC channel from these files, and the call metadata that carries the client's token."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from signalbox.addresses import host_and_port, is_loopback, listen_address
from signalbox.certificate_files import client_problems
from signalbox.errors import WRONG_USAGE, FieldProblem, InvalidInput
from signalbox.secret_files import open_to_others
from signalbox.standard_input import MAX_SMALL_BYTES, read_bytes

if TYPE_CHECKING:
    import grpc


@dataclass(frozen=True, slots=True)
class Credentials:
    """Paths of credential files.

    - ``tls_ca``: PEM file with the authorities that sign the controller's certificate; with it the connection uses TLS
    - ``tls_certificate``, ``tls_key``: PEM files with the client's own certificate and key
    - ``token_file``: file with one token"""

    tls_ca: Path | str | None = None
    tls_certificate: Path | str | None = None
    tls_key: Path | str | None = None
    token_file: Path | str | None = None

    @classmethod
    def of_environment(cls) -> Credentials:
        """Return the files that the environment names, as the commands do: ``SIGNALBOX_TLS_CA`` and so on."""
        given = (os.environ.get(f"SIGNALBOX_{name}") for name in ("TLS_CA", "TLS_CERTIFICATE", "TLS_KEY", "TOKEN_FILE"))
        return cls(*(Path(path) if path else None for path in given))

    def absolute(self) -> Credentials:
        """Return the same files with absolute paths, for a process with another working directory."""
        given = (self.tls_ca, self.tls_certificate, self.tls_key, self.token_file)
        return Credentials(*(Path(path).absolute() if path is not None else None for path in given))

    def channel(self, address: str, options: list[tuple[str, object]]) -> grpc.Channel:
        """Open a channel to ``HOST:PORT`` or ``unix:PATH``; Unix sockets are never encrypted.

        Raises ``InvalidInput`` when a file is wrong, also when others can read the key."""
        import grpc  # a training process has credentials, but leaves gRPC to its client process

        self._refuse_incomplete()
        if self.tls_ca is None or address.startswith("unix:"):
            return grpc.insecure_channel(address, options)
        authorities, certificate, key = Path(self.tls_ca), _path(self.tls_certificate), _path(self.tls_key)
        own = (_read_secret(key), _read(certificate))
        InvalidInput.refuse(client_problems(authorities, certificate, key))
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(_read(authorities), *own), options)

    def metadata(self, address: str) -> tuple[tuple[str, str], ...]:
        """Return the metadata of every call.

        Raises ``InvalidInput`` when the address is wrong, or when others could read the token in its file or on the
        network."""
        _refuse_wrong(address)
        if self.token_file is None:
            return ()
        if self.tls_ca is None and not address.startswith("unix:") and not _only_here(address):
            raise InvalidInput.of("--token-file", f"a token is sent to {address} only through TLS: give --tls-ca too")
        token = (_read_secret(Path(self.token_file)) or b"").decode(errors="replace").strip()
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise InvalidInput.of(str(self.token_file), "must contain exactly one token")
        return (("authorization", f"Bearer {token}"),)

    def _refuse_incomplete(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise InvalidInput.of("--tls-certificate", "must be given together with --tls-key", WRONG_USAGE)
        if self.tls_certificate and not self.tls_ca:
            raise InvalidInput.of("--tls-certificate", "needs --tls-ca, which turns TLS on", WRONG_USAGE)


NO_CREDENTIALS = Credentials()


def _refuse_wrong(address: str) -> None:
    """Refuse a wrong address: gRPC accepts other forms too, and its errors about wrong addresses do not help."""
    try:
        listen_address(address)
    except PydanticCustomError as error:
        raise InvalidInput.of("--address", f"{error.message()} (given: {address!r})", WRONG_USAGE) from None


def _only_here(address: str) -> bool:
    """Return whether only this machine can reach the address. Raises ``InvalidInput`` when it does not resolve."""
    host, _ = host_and_port(address)
    try:
        return is_loopback(host)
    except (OSError, UnicodeError):
        raise InvalidInput.of("--address", f"'{host}' cannot be resolved to an address") from None


def _path(given: Path | str | None) -> Path | None:
    return None if given is None else Path(given)


def _read(path: Path | None) -> bytes | None:
    try:
        return read_bytes(path, MAX_SMALL_BYTES) if path else None
    except OSError as error:
        raise InvalidInput((FieldProblem(str(path), error.strerror or str(error)),)) from None


def _read_secret(path: Path | None) -> bytes | None:
    found = _read(path)
    if path and (problem := open_to_others(path)):
        raise InvalidInput.of(str(path), problem)
    return found
