"""The names in a client's certificate: those that gRPC reports for a TLS connection that ends in it.

In: a certificate in DER (RFC 5280), which the proxy has verified. Out: its alternative names, then its common name.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import NamedTuple

_OID, _OCTETS, _BMP_STRING = 0x06, 0x04, 0x1E
_EXTENSIONS = 0xA3
_COMMON_NAME = bytes.fromhex("550403")
_ALTERNATIVE_NAMES = bytes.fromhex("551d11")
_MAIL, _DNS, _URI, _IP = 0x81, 0x82, 0x86, 0x87
_SUBJECT = 4
"""Position in the signed part after the version, which is optional: serial, algorithm, issuer, validity, subject."""
_VERSION = 0xA0


class _Part(NamedTuple):
    tag: int
    value: bytes


def of(certificate: bytes) -> tuple[str, ...]:
    """Return each name once. Raises ``ValueError`` when the bytes are no certificate."""
    try:
        (whole,) = _parts(certificate)
        signed = list(_parts(_first(whole.value)))
        fields = signed[1:] if signed[0].tag == _VERSION else signed
        extensions = [part for part in fields if part.tag == _EXTENSIONS]
        names = [*_alternative_names(extensions), *_common_name(fields[_SUBJECT])]
    except IndexError as error:
        raise ValueError("the bytes are no certificate") from error
    return tuple(dict.fromkeys(names))


def _alternative_names(extensions: list[_Part]) -> Iterator[str]:
    for holder in extensions:
        for extension in _parts(_first(holder.value)):
            identifier, *_, value = _parts(extension.value)
            if identifier == (_OID, _ALTERNATIVE_NAMES) and value.tag == _OCTETS:
                for name in _parts(_first(value.value)):
                    if name.tag in (_MAIL, _DNS, _URI):
                        yield name.value.decode(errors="replace")
                    elif name.tag == _IP:
                        yield str(ip_address(name.value))


def _common_name(subject: _Part) -> Iterator[str]:
    """The first one."""
    for names in _parts(subject.value):
        for name in _parts(names.value):
            identifier, value = _parts(name.value)
            if identifier == (_OID, _COMMON_NAME):
                yield value.value.decode("utf-16-be" if value.tag == _BMP_STRING else "utf-8", errors="replace")
                return


def _first(data: bytes) -> bytes:
    """Return the value of the first part. Raises ``ValueError``."""
    for part in _parts(data):
        return part.value
    raise ValueError("the bytes are no certificate")


def _parts(data: bytes) -> Iterator[_Part]:
    """The values that follow each other in ``data`` (X.690 section 8.1). Raises ``ValueError`` for one that is cut."""
    at = 0
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size, at = int.from_bytes(data[at : at + count]), at + count
        if at + size > len(data):
            raise ValueError("the bytes are no certificate")
        yield _Part(tag, data[at : at + size])
        at += size
