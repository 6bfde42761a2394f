"""TLS of the listeners: the controller's certificate, and the authorities that sign those of peers.

In: the files that the configuration names. Out: the context that new connections are wrapped in, or the problem of each
file. Imports no framework, so that a configuration can be checked without one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from controller.config import TlsFiles
from controller.errors import FieldProblem, InvalidInput
from controller.secret_files import open_to_others

CERTIFICATE = "certificate"
KEY = "private key"


class _EncryptedKey(Exception):
    pass


class _OpenKey(Exception):
    """Has what is wrong with the modes of the file."""


class TlsContext:
    """Of one listener, named by its section of the configuration. ``current``: for new connections, None without TLS.
    Raises ``InvalidInput`` like ``server_context``."""

    def __init__(self, section: str, files: TlsFiles | None) -> None:
        self._section = section
        self.current = server_context(section, files)

    def prepare(self, files: TlsFiles | None) -> Callable[[], None]:
        """Reads the files; what is returned has new connections use them, from any thread."""
        return partial(setattr, self, "current", server_context(self._section, files))


def server_context(section: str, files: TlsFiles | None) -> ssl.SSLContext | None:
    """None without files. With authorities peers must show a certificate that one of them signed; names in it are not
    compared here. Raises ``InvalidInput`` with the problem of every file."""
    if files is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    problems = []
    if files.ca_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        where = f"{section}.ca_certificates"
        problems.append(_problem(where, CERTIFICATE, files.ca_certificates, context.load_verify_locations))
    # Loading it as an authority checks a certificate without its key.
    where = f"{section}.certificate"
    problems.append(_problem(where, CERTIFICATE, files.certificate, scratch.load_verify_locations))
    problems.append(_problem(f"{section}.private_key", KEY, files.private_key, _refuse_open))
    if not any(problems):
        load_key = partial(context.load_cert_chain, files.certificate, password=_no_password)
        problems.append(_problem(f"{section}.private_key", KEY, files.private_key, load_key))
    InvalidInput.refuse(filter(None, problems))
    return context


def client_problems(authorities: Path, certificate: Path | None, key: Path | None) -> Iterator[FieldProblem]:
    """What is wrong with the files that the command line is given: gRPC says nothing of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found = [_problem("--tls-ca", CERTIFICATE, authorities, context.load_verify_locations)]
    if certificate and key:
        found.append(_problem("--tls-certificate", CERTIFICATE, certificate, context.load_verify_locations))
    if certificate and key and not any(found):
        load_key = partial(context.load_cert_chain, certificate, password=_no_password)
        found.append(_problem("--tls-key", KEY, key, load_key))
    return filter(None, found)


def _problem(where: str, what: str, path: Path, load: Callable[[Path], object]) -> FieldProblem | None:
    """``where``: the field that names the file. ``what``: ``CERTIFICATE`` or ``KEY``."""
    try:
        load(path)
    except _OpenKey as error:
        return FieldProblem(where, f"{path}: {error}")
    except _EncryptedKey:
        return FieldProblem(where, f"{path} is encrypted, and nobody can be asked for a password")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return FieldProblem(where, f"{path} is not the key of the certificate")
        return FieldProblem(where, f"{path} is no PEM file with a {what}")
    except OSError as error:
        return FieldProblem(where, f"cannot read {path}: {error.strerror or error}")
    return None


def _refuse_open(key: Path) -> None:
    key.read_bytes()
    if problem := open_to_others(key):
        raise _OpenKey(problem)


def _no_password() -> str:
    raise _EncryptedKey
