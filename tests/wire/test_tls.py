"""OpenFlow through TLS, with Python's TLS in the switch; tests/lab/test_tls.py uses Open vSwitch's."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.openflow_bytes import Type
from controller.config import Config
from controller.fabric.messages import ConnectionRefused, SwitchConnected
from controller.serving import preflight
from mininet_topos.controller_process import reserve_port
from signalbox.errors import InvalidInput
from tests.support.wire.certificates import Authority, Certificate
from tests.support.wire.fake_switch import FakeSwitch
from tests.support.wire.openflow_controller import Southbound, southbound


class Secured(NamedTuple):
    controller: Southbound
    port: int
    authority: Authority
    other_authority: Authority

    def context(self, shown: Certificate | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
        """Return the context of a switch, which verifies the controller's certificate and presents its own."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.maximum_version = version
        context.load_verify_locations(cafile=self.authority.certificate)
        if shown:
            context.load_cert_chain(*shown)
        return context


def openflow(authority: Authority, **others: object) -> dict[str, object]:
    ours = authority.sign("controller")
    files = {"certificate": ours.certificate, "private_key": ours.private_key, "ca_certificates": authority.certificate}
    return {"port": reserve_port(), **files, **others}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("certificates")
    authority, other_authority = Authority(directory, "ours"), Authority(directory, "other")
    settings = Config.model_validate({"openflow": openflow(authority)})
    with southbound(settings) as controller:
        yield Secured(controller, settings.openflow.port, authority, other_authority)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_every_switch_with_a_certificate_of_the_authority_is_served(secured: Secured, version: ssl.TLSVersion) -> None:
    context = secured.context(secured.authority.sign("leaf"), version)
    for dpid in (version * 16 + 1, version * 16 + 2):
        switch = FakeSwitch(secured.port, dpid, tls=context).connect(ports=200)
        assert len(secured.controller.first(SwitchConnected, dpid=dpid).ports) == 200
        switch.close()


def test_a_switch_without_a_certificate_of_the_authority_is_refused(secured: Secured) -> None:
    """Plain OpenFlow is refused too where TLS is configured."""
    for shown in (None, secured.other_authority.sign("leaf")):
        since = len(secured.controller.received)
        switch = FakeSwitch(secured.port, 0x21, tls=secured.context(shown))
        with pytest.raises((EOFError, OSError)):
            switch.connect()
        switch.close()
        refused = secured.controller.first(ConnectionRefused, since)
        assert (refused.reason, refused.dpid) == ("tls", None)
    since = len(secured.controller.received)
    switch = FakeSwitch(secured.port, 0x31)
    switch.send(Type.HELLO, b"")
    switch.wait_closed()
    switch.close()
    assert secured.controller.first(ConnectionRefused, since).reason == "tls"


def test_a_switch_is_taken_only_for_a_datapath_that_its_certificate_names(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    settings = Config.model_validate({"openflow": openflow(authority, dpid_in_certificate=True)})
    with southbound(settings) as controller:
        secured = Secured(controller, settings.openflow.port, authority, authority)
        context = secured.context(authority.sign("0x41 0xabc id:leaf"))
        for dpid in (0x41, 0xABC):
            switch = FakeSwitch(secured.port, dpid, tls=context).connect()
            controller.first(SwitchConnected, dpid=dpid)
            switch.close()
        since = len(controller.received)
        switch = FakeSwitch(secured.port, 0x4, mute=True, tls=context).connect()
        switch.wait_closed()
        switch.close()
        assert controller.first(ConnectionRefused, since).reason == "other_certificate"


def test_each_wrong_file_is_named_with_its_field(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    right = openflow(ours)
    empty = tmp_path / "empty"
    empty.touch(0o600)

    def problems(**wrong: Path) -> dict[str, str]:
        with pytest.raises(InvalidInput) as error:
            preflight.check(Config.model_validate({"openflow": right | wrong}))
        return {problem.path: problem.message.replace(str(tmp_path), "") for problem in error.value.problems}

    preflight.check(Config.model_validate({"openflow": right}))
    assert problems(certificate=empty, ca_certificates=empty, private_key=tmp_path / "none") == {
        "openflow.ca_certificates": "/empty is not a PEM file with a certificate",
        "openflow.certificate": "/empty is not a PEM file with a certificate",
        "openflow.private_key": "cannot read /none: No such file or directory",
    }
    assert problems(private_key=empty) == {"openflow.private_key": "/empty is not a PEM file with a private key"}
    assert problems(private_key=other.sign("leaf").private_key) == {
        "openflow.private_key": "/other-leaf.key is not the key of the certificate"
    }
    empty.chmod(0o644)
    assert problems(private_key=empty) == {
        "openflow.private_key": "/empty: other users have access to it (mode 0644): chmod 600 /empty"
    }


def test_an_encrypted_key_is_an_error_and_not_a_prompt(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    settings = openflow(ours)
    key = ours.sign("controller", password="secret").private_key
    with pytest.raises(InvalidInput, match="is encrypted"):
        preflight.check(Config.model_validate({"openflow": settings | {"private_key": key}}))


def test_settings_that_belong_together_are_given_together() -> None:
    with pytest.raises(ValueError, match="must be set together; missing: private_key, ca_certificates"):
        Config.model_validate({"openflow": {"certificate": "controller.pem"}})
    with pytest.raises(ValueError, match="dpid_in_certificate needs certificate"):
        Config.model_validate({"openflow": {"dpid_in_certificate": True}})
