"""Check PEM files of certificates and keys. gRPC does not report what is wrong with them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from signalbox.errors import FieldProblem
from signalbox.secret_files import open_to_others
from signalbox.standard_input import read_small

CERTIFICATE = "certificate"


KEY = "private key"


class _EncryptedKey(Exception):
    pass


class _OpenKey(Exception):
    """Error: other users have access to the key file. The message names its mode and a command that corrects it."""


OPTIONS = ("--tls-ca", "--tls-certificate", "--tls-key")


def client_problems(
    authorities: Path, certificate: Path | None, key: Path | None, names: tuple[str, str, str] = OPTIONS
) -> Iterator[FieldProblem]:
    """Yield the problems of a client's certificate and key files.

    ``names``: names of the options or fields that name the three files."""
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

    ``where`` is the field that names the file; ``what`` is ``CERTIFICATE`` or ``KEY``; ``load`` reads the file, and
    raises an error when the file is wrong."""
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
