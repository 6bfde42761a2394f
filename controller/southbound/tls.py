"""TLS for OpenFlow: the controller's certificate, and the authority that signs those of switches.

In: the OpenFlow section of the configuration. Out: the context that every connection is wrapped in, or the problem of
each of its files. Imports no framework, so that a configuration can be checked without one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
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
    scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    problems = [
        _problem("ca_certificates", files.ca_certificates, context.load_verify_locations),
        # Loading it as an authority checks a certificate without its key.
        _problem("certificate", files.certificate, scratch.load_verify_locations),
        _problem("private_key", files.private_key, Path.read_bytes),
    ]
    if not any(problems):
        load_key = partial(context.load_cert_chain, files.certificate, password=_no_password)
        problems.append(_problem("private_key", files.private_key, load_key))
    InvalidInput.refuse(filter(None, problems))
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


def _no_password() -> str:
    raise _EncryptedKey
