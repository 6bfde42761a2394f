"""Invalid certificates: which the checks report, which a start accepts, and which a reload refuses."""

import re
import ssl
import time
from pathlib import Path

import pytest

from controller.config import Config
from controller.serving import preflight, validity
from controller.serving.validity import CertificatesInUse
from controller.status import StatusBoard
from signalbox.errors import InvalidInput
from tests.support.captured_logs import captured_logs
from tests.support.wire.certificates import Authority, Certificate

DAY_S = 86_400.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "ours")


@pytest.fixture(scope="module")
def valid(authority: Authority) -> Certificate:
    return authority.sign("controller")


@pytest.fixture(scope="module")
def expired(authority: Authority) -> Certificate:
    return authority.sign_expired("controller")


def config(shown: Certificate, section: str = "api") -> Config:
    return Config.model_validate({section: shown._asdict()})


def test_the_dates_are_those_that_openssl_shows_of_a_certificate_alone(valid: Certificate, tmp_path: Path) -> None:
    found = validity.of(valid.certificate)
    assert found
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = valid.certificate.with_name("ours.pem")
    context.load_verify_locations(authority)
    (known,) = context.get_ca_certs()
    begins, ends = (ssl.cert_time_to_seconds(str(known[key])) for key in ("notBefore", "notAfter"))
    assert validity.of(authority) == (begins, ends)
    file = tmp_path / "c.pem"
    assert validity.of(file) is None
    file.write_text("a comment\n" + valid.certificate.read_text() + authority.read_text())
    assert validity.of(file) == found
    lines = valid.certificate.read_text().splitlines()
    for text in ("", "no certificate", "\n".join([lines[0], *lines[2:]]), "\n".join([*lines[:2], lines[-1]])):
        file.write_text(text)
        assert validity.of(file) is None, "it is no certificate"


def test_years_of_two_digits_are_from_1950_to_2049() -> None:
    assert validity._seconds(0x17, "500101000000Z") == -631_152_000
    assert validity._seconds(0x17, "491231235959Z") == 2_524_607_999
    assert validity._seconds(0x18, "20500101000000Z") == 2_524_608_000


@pytest.mark.parametrize("section", ["api", "metrics"])
def test_the_check_names_an_expired_certificate_with_its_date(expired: Certificate, section: str) -> None:
    preflight.check(config(expired, section))  # a controller starts with an expired certificate
    with pytest.raises(InvalidInput) as error:
        preflight.check_dates(config(expired, section))
    (problem,) = error.value.problems
    assert problem.path == f"{section}.certificate"
    assert re.fullmatch(rf"{expired.certificate} expired on \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC", problem.message)


def test_a_certificate_is_valid_from_its_first_second_to_before_its_last(valid: Certificate) -> None:
    found = validity.of(valid.certificate)
    assert found
    said = [
        [each.message.partition(str(valid.certificate))[2] for each in validity.problems(config(valid), at)]
        for at in (found.begins - 1, found.begins, found.ends - 1, found.ends)
    ]
    begins, ends = validity._date(found.begins), validity._date(found.ends)
    assert said == [[f" is not valid before {begins}"], [], [], [f" expired on {ends}"]]


def test_a_reload_refuses_an_expired_certificate_unless_it_is_in_use(valid: Certificate, expired: Certificate) -> None:
    """The old certificate counts then. If it is expired, everything else can be replaced all the same."""
    board = StatusBoard()
    in_use = CertificatesInUse(config(valid), board)
    assert board.certificates_end["api"] == pytest.approx(time.time() + 2 * DAY_S, abs=DAY_S)
    before = board.certificates_end
    with pytest.raises(InvalidInput, match="expired on"):
        in_use.prepare(config(expired))
    assert board.certificates_end == before
    with captured_logs() as lines:
        in_use = CertificatesInUse(config(expired), board)
        in_use.prepare(config(expired))()
    assert [(line["log_level"], line["event"]) for line in lines] == [("error", "the certificate is not valid")] * 2
    assert board.certificates_end["api"] < time.time()
    in_use.prepare(config(valid))()
    assert board.certificates_end["api"] > time.time()
