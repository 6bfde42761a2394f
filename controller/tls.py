"""TLS of the listeners: the controller's certificate, and the authorities for certificates of peers.

In: the files in the configuration. Out: the context for new connections, or the problem of each file. The module also
reads fields of a certificate that Python reports only for a peer's certificate. It imports no framework, so that a
configuration can be checked without one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from controller.config import TlsFiles
from signalbox.credentials import CERTIFICATE, KEY, no_password, problem, refuse_open
from signalbox.errors import InvalidInput


class TlsContext:
    """TLS of one listener. ``section``: its section of the configuration.

    Raises ``InvalidInput`` like ``server_context``."""

    def __init__(self, section: str, files: TlsFiles | None) -> None:
        self._section = section
        self.current = server_context(section, files)
        """Context for new connections; None without TLS."""

    def prepare(self, files: TlsFiles | None) -> Callable[[], None]:
        """Read the files, and return a function that makes new connections use them.

        Any thread may call this function."""
        return partial(setattr, self, "current", server_context(self._section, files))


def server_context(section: str, files: TlsFiles | None) -> ssl.SSLContext | None:
    """Return the context for a listener; None without files.

    If authorities are given, peers must present a certificate that one of the authorities signed. The context does not
    check the names in the certificate. Raises ``InvalidInput`` with the problem of every file."""
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
        problems.append(problem(where, CERTIFICATE, files.ca_certificates, context.load_verify_locations))
    # Loading the certificate as an authority checks it without its key.
    where = f"{section}.certificate"
    problems.append(problem(where, CERTIFICATE, files.certificate, scratch.load_verify_locations))
    problems.append(problem(f"{section}.private_key", KEY, files.private_key, refuse_open))
    if not any(problems):
        load_key = partial(context.load_cert_chain, files.certificate, password=no_password)
        problems.append(problem(f"{section}.private_key", KEY, files.private_key, load_key))
    InvalidInput.refuse(filter(None, problems))
    return context


# ---- certificates in DER

_VERSION = 0xA0


class DerPart(NamedTuple):
    """A value in DER, an encoding of ITU-T X.690."""

    tag: int
    value: bytes


def certificate_fields(certificate: bytes) -> list[DerPart]:
    """Return the fields of a certificate that are signed, without the version, in DER (RFC 5280 section 4.1).

    The fields are serial number, algorithm, issuer, validity, subject, and the remaining ones in the order of the RFC.
    Raises ``ValueError`` when the bytes are not a certificate."""
    (whole,) = der_parts(certificate)
    signed, *_ = der_parts(whole.value)
    return [part for part in der_parts(signed.value) if part.tag != _VERSION]


def der_parts(data: bytes) -> Iterator[DerPart]:
    """Yield the consecutive values in DER data (X.690 section 8.1). Raises ``ValueError`` for a truncated value."""
    at = 0
    while at < len(data):
        start = at + 2
        size = data[at + 1] if start <= len(data) else 0
        if size & 0x80:
            count = size & 0x7F
            size, start = int.from_bytes(data[start : start + count]), start + count
        if start + size > len(data):
            raise ValueError("the bytes are not an X.509 certificate in DER form")
        yield DerPart(data[at], data[start : start + size])
        at = start + size
