"""TLS of the listeners: the controller's certificate, and the authorities that sign those of peers.

In: the files that the configuration names. Out: the context that new connections are wrapped in, or the problem of each
file. Imports no framework, so that a configuration can be checked without one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path

from controller.config import TlsFiles
from controller.errors import FieldProblem, InvalidInput
from controller.secret_files import open_to_others


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
    problem = partial(_problem, section)
    problems = []
    if files.ca_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        problems.append(problem("ca_certificates", files.ca_certificates, context.load_verify_locations))
    problems += [
        # Loading it as an authority checks a certificate without its key.
        problem("certificate", files.certificate, scratch.load_verify_locations),
        problem("private_key", files.private_key, _refuse_open),
    ]
    if not any(problems):
        load_key = partial(context.load_cert_chain, files.certificate, password=_no_password)
        problems.append(problem("private_key", files.private_key, load_key))
    InvalidInput.refuse(filter(None, problems))
    return context


def _problem(section: str, field: str, path: Path, load: Callable[[Path], object]) -> FieldProblem | None:
    where = f"{section}.{field}"
    try:
        load(path)
    except _OpenKey as error:
        return FieldProblem(where, f"{path}: {error}")
    except _EncryptedKey:
        return FieldProblem(where, f"{path} is encrypted, and the controller cannot ask for a password")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return FieldProblem(where, f"{path} is not the key of the certificate")
        what = "private key" if field == "private_key" else "certificate"
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
