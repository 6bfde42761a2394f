"""TLS for OpenFlow: the controller's certificate, and the authority that signs those of switches.

In: the OpenFlow section of the configuration. Out: the context that every connection is wrapped in, or the problem of
each of its files. Imports no framework, so that a configuration can be checked without one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from controller.config import OpenFlowConfig
from controller.errors import FieldProblem, InvalidInput


class _EncryptedKey(Exception):
    pass


def server_context(openflow: OpenFlowConfig) -> ssl.SSLContext | None:
    """None when TLS is not configured. Peers must show a certificate that the configured authority signed; names in it
    are not compared, as switches have none. Raises ``InvalidInput`` with the problem of every file."""
    files = openflow.tls_files
    if files is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = ssl.CERT_REQUIRED
    problems = [
        _problem("ca_certificates", files.ca_certificates, lambda path: _load_authority(context, path)),
        # Loading it as an authority checks a certificate without its key.
        _problem("certificate", files.certificate, lambda path: _load_authority(_scratch(), path)),
        _problem("private_key", files.private_key, lambda path: path.read_bytes()),
    ]
    if not any(problems):
        problems.append(
            _problem("private_key", files.private_key, lambda key: _load_key(context, files.certificate, key))
        )
    found = tuple(filter(None, problems))
    if found:
        raise InvalidInput(found)
    return context


def _problem(field: str, path: Path, load: Callable[[Path], object]) -> FieldProblem | None:
    where = f"openflow.{field}"
    try:
        load(path)
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


def _scratch() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def _load_authority(context: ssl.SSLContext, path: Path) -> None:
    context.load_verify_locations(cafile=path)


def _load_key(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    context.load_cert_chain(certificate, key, password=_no_password)


def _no_password() -> str:
    raise _EncryptedKey
