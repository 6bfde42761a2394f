"""Validity periods of the listeners' certificates (RFC 5280 section 4.1.2.5).

In: the files that the configuration names, and the time. Out: the expiry of each certificate, and a problem for a
certificate that is not valid now.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from controller.config import Config, TlsFiles
from controller.status import StatusBoard
from controller.tls import certificate_fields, der_parts
from signalbox.errors import FieldProblem, InvalidInput
from signalbox.files import read_small

log = structlog.get_logger(__name__)

TLS_SECTIONS = ("openflow", "api", "metrics", "members")
UTC_TIME_TAG = 0x17


class Validity(NamedTuple):
    """Validity period of a certificate, in seconds since 1970."""

    begins: float
    ends: float


class CertificatesInUse:
    """Certificates in use, whose expiries are published on the board.

    An invalid certificate is logged as an error, but the controller runs. Only clients that verify the certificate
    fail, whereas without the controller nothing would repair the fabric."""

    def __init__(self, config: Config, board: StatusBoard) -> None:
        self._board = board
        self._in_use: Mapping[str, Validity] = {}
        self._use(config, _found(config))

    def prepare(self, config: Config) -> Callable[[], None]:
        """Read the certificates, and return a function that puts them in use.

        Raises ``InvalidInput`` for an invalid certificate, unless it is in use already. Refusing a certificate in use
        would block all other changes."""
        found = _found(config)
        new = {section: validity for section, validity in found.items() if validity != self._in_use.get(section)}
        InvalidInput.refuse(_problems(config, new, time.time()))
        return partial(self._use, config, found)

    def _use(self, config: Config, found: Mapping[str, Validity]) -> None:
        for problem in _problems(config, found, time.time()):
            log.error("the certificate is not valid", what=str(problem))
        self._in_use = found
        self._board.certificates_end = {section: validity.ends for section, validity in found.items()}


def problems(config: Config, now: float) -> Iterator[FieldProblem]:
    """Yield a problem for each readable certificate that is not valid at ``now`` (seconds since 1970)."""
    return _problems(config, _found(config), now)


def _problems(config: Config, found: Mapping[str, Validity], now: float) -> Iterator[FieldProblem]:
    for section, (begins, ends) in found.items():
        files: TlsFiles = getattr(config, section).tls_files
        where = f"{section}.certificate"
        if now >= ends:
            yield FieldProblem(where, f"{files.certificate} expired on {_date(ends)}")
        elif now < begins:
            yield FieldProblem(where, f"{files.certificate} is not valid before {_date(begins)}")


def _found(config: Config) -> dict[str, Validity]:
    """Return the validities by listener, without unreadable files, since loading them reports the problem."""
    found = {}
    for section in TLS_SECTIONS:
        files: TlsFiles | None = getattr(config, section).tls_files
        if files and (validity := of(files.certificate)):
            found[section] = validity
    return found


def of(file: Path) -> Validity | None:
    """Return the validity of the first certificate in the file, which clients see; None if it cannot be read."""
    try:
        text = read_small(file).decode("ascii", errors="replace")
        begin = text.index(ssl.PEM_HEADER)
        pem = text[begin : text.index(ssl.PEM_FOOTER, begin) + len(ssl.PEM_FOOTER)]
        _serial, _algorithm, _issuer, validity, *_ = certificate_fields(ssl.PEM_cert_to_DER_cert(pem))
        begins, ends = (_seconds(tag, text.decode()) for tag, text in der_parts(validity.value))
    except (OSError, ValueError):
        return None
    return Validity(begins, ends)


def _seconds(tag: int, text: str) -> float:
    """Return the time in seconds since 1970. Raises ``ValueError``."""
    century = ("19" if text >= "50" else "20") if tag == UTC_TIME_TAG else ""
    return datetime.strptime(century + text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
