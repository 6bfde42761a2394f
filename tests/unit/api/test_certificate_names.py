"""The names in a certificate, as openssl writes them."""

from __future__ import annotations

import ssl

import pytest

from controller.api import certificate_names
from tests.support.wire.certificates import Authority, Certificate


def der(made: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(made.certificate.read_text())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "ours")


def test_alternative_names_come_first_and_each_name_once(authority: Authority) -> None:
    also = "DNS:a.example.org,DNS:worker,URI:spiffe://x/y,IP:192.0.2.1,IP:2001:db8::1,email:a@example.org"
    made = authority.sign("worker", also=also)
    names = ("a.example.org", "worker", "spiffe://x/y", "192.0.2.1", "2001:db8::1", "a@example.org")
    assert certificate_names.of(der(made)) == names


def test_the_common_name_is_the_first_of_the_subject_and_not_of_the_authority(authority: Authority) -> None:
    """The older form of certificates, without extensions, has names, too."""
    for name in ("worker", "w" * 64):
        assert certificate_names.of(der(authority.sign(name, file=f"named{len(name)}"))) == (name,)
    assert certificate_names.of(der(authority.sign("worker/CN=operator", file="two"))) == ("worker",)
    assert certificate_names.of(der(authority.sign_expired("worker"))) == ("worker",)


def test_bytes_that_are_no_certificate_are_an_error(authority: Authority) -> None:
    whole = der(authority.sign("cut", also="DNS:a"))
    others = b"\x30", b"\x30\x03\x02\x01\x01", b"\xff" * 40
    for cut in (*others, *(whole[:size] for size in range(0, len(whole), 7))):
        with pytest.raises(ValueError):
            certificate_names.of(cut)


def test_no_change_of_a_byte_raises_anything_else(authority: Authority) -> None:
    whole = der(authority.sign("changed", also="DNS:a,IP:192.0.2.1"))
    for at in range(len(whole)):
        for value in (0, 1, 0x80, 0xFF):
            changed = whole[:at] + bytes([value]) + whole[at + 1 :]
            try:
                certificate_names.of(changed)
            except ValueError:
                continue
