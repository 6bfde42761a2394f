"""Credentials of a client: files with its identity and with the authorities that it trusts.

``Credentials`` makes gRPC channels from these files, and the call metadata that carries the client's token. gRPC does
not report what is wrong with PEM files, so they are checked here."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from signalbox.addresses import api_addresses, host_and_port, is_loopback
from signalbox.errors import WRONG_USAGE, FieldProblem, InvalidInput
from signalbox.files import MAX_SMALL_BYTES, open_to_others, read_bytes, read_small

if TYPE_CHECKING:
    import grpc


CERTIFICATE = "certificate"


KEY = "private key"


class _EncryptedKey(Exception):
    pass


class _OpenKey(Exception):
    """Error: users other than the owner have access to a key file.

    The error's text has the mode of the file, and a command that corrects it."""


OPTIONS = ("--tls-ca", "--tls-certificate", "--tls-key")


def client_problems(
    authorities: Path, certificate: Path | None, key: Path | None, names: tuple[str, str, str] = OPTIONS
) -> Iterator[FieldProblem]:
    """Yield the problems of a client's files: authorities, certificate and key.

    ``names``: names of the three options or fields with the paths of these files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    of_authorities, of_certificate, of_key = names
    found = [problem(of_authorities, CERTIFICATE, authorities, context.load_verify_locations)]
    if certificate and key:
        found.append(problem(of_certificate, CERTIFICATE, certificate, context.load_verify_locations))
    if certificate and key and not any(found):
        load_key = partial(context.load_cert_chain, certificate, password=no_password)
        found.append(problem(of_key, KEY, key, load_key))
    return filter(None, found)


def problem(where: str, what: str, path: Path, load: Callable[[Path], object]) -> FieldProblem | None:
    """Return the problem of one PEM file, or None when the file is usable.

    - ``where``: option or field with the path of the file
    - ``what``: ``CERTIFICATE`` or ``KEY``
    - ``load``: function that reads the file, and raises an error when the file is wrong"""
    try:
        read_small(path)
        load(path)
    except _OpenKey as error:
        return FieldProblem(where, f"{path}: {error}")
    except _EncryptedKey:
        return FieldProblem(where, f"{path} is encrypted; a key without a password is needed")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return FieldProblem(where, f"{path} is not the key of the certificate")
        return FieldProblem(where, f"{path} is not a PEM file with a {what}")
    except OSError as error:
        return FieldProblem(where, f"cannot read {path}: {error.strerror or error}")
    return None


def refuse_open(key: Path) -> None:
    read_small(key)
    if problem := open_to_others(key):
        raise _OpenKey(problem)


def no_password() -> str:
    raise _EncryptedKey


@dataclass(frozen=True, slots=True)
class Credentials:
    """Paths of a client's credential files.

    - ``tls_ca``: PEM file with the authorities that sign the controller's certificate; if given, the connection uses
      TLS
    - ``tls_certificate``, ``tls_key``: PEM files with the client's own certificate and key
    - ``token_file``: file with the token that the client sends with each call"""

    tls_ca: Path | str | None = None
    tls_certificate: Path | str | None = None
    tls_key: Path | str | None = None
    token_file: Path | str | None = None

    @classmethod
    def of_environment(cls) -> Credentials:
        """Return the credentials whose paths are in environment variables: ``SIGNALBOX_TLS_CA`` and so on."""
        given = (os.environ.get(f"SIGNALBOX_{name}") for name in ("TLS_CA", "TLS_CERTIFICATE", "TLS_KEY", "TOKEN_FILE"))
        return cls(*(Path(path) if path else None for path in given))

    def absolute(self) -> Credentials:
        """Return these credentials with absolute paths, for a process with another working directory."""
        given = (self.tls_ca, self.tls_certificate, self.tls_key, self.token_file)
        return Credentials(*(Path(path).absolute() if path is not None else None for path in given))

    def opener(self, addresses: str, options: list[tuple[str, object]]) -> Callable[[str], grpc.Channel]:
        """Return a function that opens a channel to one of these addresses.

        Channels to Unix sockets are never encrypted. The certificate of each controller must be valid for the host name
        in its address. Raises ``InvalidInput`` when a file is wrong, or when other users can read the key."""
        import grpc  # a training process has credentials, but leaves gRPC to its client process

        self._refuse_incomplete()
        if self.tls_ca is None or addresses.startswith("unix:"):
            return lambda address: grpc.insecure_channel(address, options)
        authorities, certificate, key = Path(self.tls_ca), _path(self.tls_certificate), _path(self.tls_key)
        own = (_read_secret(key), _read(certificate))
        InvalidInput.refuse(client_problems(authorities, certificate, key))
        secured = grpc.ssl_channel_credentials(_read(authorities), *own)
        return lambda address: grpc.secure_channel(address, secured, options)

    def metadata(self, addresses: str) -> tuple[tuple[str, str], ...]:
        """Return the metadata of every call to these addresses: the token, or none.

        Raises ``InvalidInput`` when an address is wrong, when other users can read the token's file, or when the token
        would travel unencrypted over the network."""
        found = checked_addresses(addresses)
        if self.token_file is None:
            return ()
        for address in found:
            if self.tls_ca is None and not address.startswith("unix:") and not _is_local(address):
                text = f"a token is sent to {address} only through TLS: give --tls-ca too"
                raise InvalidInput.of("--token-file", text)
        try:
            token = (_read_secret(Path(self.token_file)) or b"").decode(errors="replace").strip()
        except OSError as error:
            raise InvalidInput.of("--token-file", f"cannot read {self.token_file}: {error.strerror or error}") from None
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise InvalidInput.of(str(self.token_file), "must contain exactly one token")
        return (("authorization", f"Bearer {token}"),)

    def _refuse_incomplete(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise InvalidInput.of("--tls-certificate", "must be given together with --tls-key", WRONG_USAGE)
        if self.tls_certificate and not self.tls_ca:
            raise InvalidInput.of("--tls-certificate", "needs --tls-ca, which turns TLS on", WRONG_USAGE)


NO_CREDENTIALS = Credentials()


def checked_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses in a list. Raises ``InvalidInput`` when one of them is wrong.

    The check is made here, because gRPC accepts other forms too, and its errors about addresses do not help users."""
    try:
        return api_addresses(text)
    except PydanticCustomError as error:
        raise InvalidInput.of("--address", f"{error.message()} (given: {text!r})", WRONG_USAGE) from None


def _is_local(address: str) -> bool:
    """Return whether the address is on the loopback interface. Raises ``InvalidInput`` when it does not resolve."""
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
