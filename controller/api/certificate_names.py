"""Names in a client's certificate: the same names that gRPC reports for a TLS connection without a proxy.

In: a certificate in DER (RFC 5280), which HAProxy has verified. Out: its alternative names, then its common name.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from controller.tls import DerPart, certificate_fields, der_parts

_OID, _OCTETS, _BMP_STRING = 0x06, 0x04, 0x1E
_EXTENSIONS = 0xA3
_COMMON_NAME = bytes.fromhex("550403")
_ALTERNATIVE_NAMES = bytes.fromhex("551d11")
_MAIL, _DNS, _URI, _IP = 0x81, 0x82, 0x86, 0x87
_SUBJECT = 4
"""Index of the subject in the result of ``certificate_fields``."""


def of(certificate: bytes) -> tuple[str, ...]:
    """Return the names without repetitions. Raises ``ValueError`` if the bytes are not a certificate."""
    fields = certificate_fields(certificate)
    if len(fields) <= _SUBJECT:
        raise ValueError("the bytes are not an X.509 certificate in DER form")
    return tuple(dict.fromkeys([*_alternative_names(fields), *_common_name(fields[_SUBJECT])]))


def _alternative_names(fields: list[DerPart]) -> Iterator[str]:
    for holder in fields:
        if holder.tag != _EXTENSIONS:
            continue
        (extensions,) = der_parts(holder.value)
        for extension in der_parts(extensions.value):
            identifier, *_, value = der_parts(extension.value)
            if identifier == (_OID, _ALTERNATIVE_NAMES) and value.tag == _OCTETS:
                (names,) = der_parts(value.value)
                for name in der_parts(names.value):
                    if name.tag in (_MAIL, _DNS, _URI):
                        yield name.value.decode(errors="replace")
                    elif name.tag == _IP:
                        yield str(ip_address(name.value))


def _common_name(subject: DerPart) -> Iterator[str]:
    for names in der_parts(subject.value):
        for name in der_parts(names.value):
            identifier, value = der_parts(name.value)
            if identifier == (_OID, _COMMON_NAME):
                yield value.value.decode("utf-16-be" if value.tag == _BMP_STRING else "utf-8", errors="replace")
                return
