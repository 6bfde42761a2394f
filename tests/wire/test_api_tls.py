"""The API through TLS and mutual TLS, with certificates made here, and with tokens."""

import socket
import ssl
from pathlib import Path

import pytest

from controller.api.lease_tokens import LeaseTokens
from controller.api.server import ApiServer
from controller.config import ApiConfig
from controller.status import StatusBoard
from signalbox.client import Client, Unreachable
from signalbox.credentials import Credentials
from signalbox.errors import InvalidInput, Unauthenticated
from tests.support.captured_logs import captured_logs
from tests.support.wire.control_stand_in import running_api
from tests.support.wire.secured import TOKEN, Secured, status_of


def test_clients_that_trust_the_authority_are_served_and_no_others(secured: Secured, tmp_path: Path) -> None:
    """A Unix socket stays plain beside TLS."""
    with running_api("127.0.0.1:0", f"unix:{tmp_path}/api.sock", **secured.settings) as api:
        assert status_of(api.addresses[0], secured.credentials())
        assert status_of(api.addresses[1], Credentials())
        assert status_of(api.addresses[1], secured.credentials())
        with pytest.raises(Unreachable, match="or no authority in --tls-ca signed it"):
            status_of(api.addresses[0], Credentials(secured.other.certificate))
        with pytest.raises(Unreachable, match="may require TLS"):
            status_of(api.addresses[0])


def test_a_server_whose_certificate_is_for_another_address_is_refused(secured: Secured) -> None:
    wrong = secured.ours.sign("elsewhere", also="DNS:elsewhere.example.org")
    with (
        running_api(certificate=wrong.certificate, private_key=wrong.private_key) as api,
        pytest.raises(Unreachable, match="the controller's certificate does not name this address"),
    ):
        status_of(api.addresses[0], secured.credentials())


def test_who_speaks_tls_where_there_is_none_learns_so(secured: Secured) -> None:
    with running_api() as api, pytest.raises(Unreachable, match="the controller does not speak TLS"):
        status_of(api.addresses[0], secured.credentials())


def test_tls_before_1_2_is_refused(secured: Secured) -> None:
    with running_api(**secured.settings) as api:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cafile=secured.ours.certificate)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            context.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        host, port = api.addresses[0].split(":")
        with (
            socket.create_connection((host, int(port)), timeout=60) as sock,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            context.wrap_socket(sock, server_hostname="localhost")


def test_only_a_valid_certificate_of_the_authority_gets_a_connection_and_is_enough(secured: Secured) -> None:
    with running_api(**secured.settings, ca_certificates=secured.ours.certificate) as api:
        assert status_of(api.addresses[0], secured.credentials(secured.ours.sign("anyone")))
        for shown in (None, secured.other.sign("scheduler"), secured.ours.sign_expired("scheduler")):
            with pytest.raises(Unreachable, match=r"--tls-certificate|requires a client certificate"):
                status_of(api.addresses[0], secured.credentials(shown))


def test_authorities_can_be_replaced_while_the_server_runs(secured: Secured) -> None:
    settings = {**secured.settings, "ca_certificates": secured.ours.certificate}
    with running_api(**settings) as api:
        other = ApiConfig(**{**settings, "ca_certificates": secured.other.certificate})
        api.server.files.certificates.prepare(other.tls_files)()
        assert status_of(api.addresses[0], secured.credentials(secured.other.sign("anyone")))
        with pytest.raises(Unreachable):
            status_of(api.addresses[0], secured.credentials(secured.ours.sign("anyone")))


def test_a_certificate_has_the_role_of_its_name_and_others_have_none(secured: Secured) -> None:
    settings = {**secured.settings, "ca_certificates": secured.ours.certificate, "tokens": secured.tokens}
    with running_api(**settings) as api:
        assert status_of(api.addresses[0], secured.credentials(secured.ours.sign("scheduler")))
        by_other_name = secured.ours.sign("worker", also="DNS:scheduler")
        assert status_of(api.addresses[0], secured.credentials(by_other_name))
        with (
            captured_logs() as lines,
            pytest.raises(Unauthenticated, match=r"add a \[\[certificate\]\] with one of its names \(stranger\)"),
        ):
            status_of(api.addresses[0], secured.credentials(secured.ours.sign("stranger")))
        assert [line["certificate"] for line in lines if line["event"] == "audit"] == ["stranger"]
        # A token takes precedence over the certificate, even when it is wrong.
        assert status_of(api.addresses[0], secured.credentials(secured.ours.sign("stranger"), TOKEN))
        with pytest.raises(Unauthenticated, match="the token is not known"):
            status_of(api.addresses[0], secured.credentials(secured.ours.sign("scheduler"), "sbx_wrong"))


def test_a_token_is_accepted_through_tls_a_socket_and_loopback(secured: Secured, tmp_path: Path) -> None:
    with running_api(**secured.settings, tokens=secured.tokens) as api:
        assert status_of(api.addresses[0], secured.credentials(token=TOKEN))
        with pytest.raises(
            Unauthenticated, match=r"a token is required .--token-file.; client certificates are accepted only with"
        ):
            status_of(api.addresses[0], secured.credentials())
    listen = "127.0.0.1:0", f"unix:{tmp_path}/api.sock"
    with running_api(*listen, tokens=secured.tokens, socket_role="none") as api:
        for address in api.addresses:
            assert status_of(address, Credentials(token_file=secured.token_file()))
            with pytest.raises(Unauthenticated):
                status_of(address, Credentials())


def test_a_token_is_not_accepted_where_it_could_be_read_on_its_way(secured: Secured) -> None:
    """The machine's own address stands for one of the network: gRPC sees a peer that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        own: str = probe.getsockname()[0]
    with running_api(f"{own}:0", tokens=secured.tokens, insecure=True) as api:
        with pytest.raises(InvalidInput, match="only through TLS: give --tls-ca too"):
            Client(api.addresses[0], credentials=Credentials(token_file=secured.token_file()))
        careless = Client(api.addresses[0], credentials=Credentials())
        careless._metadata = (("authorization", f"Bearer {TOKEN}"),)
        with careless, pytest.raises(Unauthenticated, match="accepted only through TLS, a Unix socket or loopback"):
            careless.get_status()


def test_other_forms_of_authorization_are_refused(secured: Secured) -> None:
    with running_api(tokens=secured.tokens) as api, Client(api.addresses[0]) as client:
        for values in (["Bearer"], ["Basic b3Bz"], [TOKEN], [f"bearer {TOKEN}"], [f"Bearer {TOKEN}"] * 2):
            client._metadata = tuple(("authorization", value) for value in values)
            with pytest.raises(Unauthenticated, match="must occur once, as 'Bearer TOKEN'"):
                client.get_status()
    for content in ("", "two words", "t\u00f6ken", "a\nb"):
        with pytest.raises(InvalidInput, match="must contain exactly one token"):
            Client("127.0.0.1:1", credentials=Credentials(token_file=secured.token_file(content)))


def test_incomplete_credentials_are_an_error(secured: Secured, tmp_path: Path) -> None:
    own = secured.ours.sign("client")
    for wrong, message in [
        (Credentials(tls_certificate=own.certificate, tls_key=own.private_key), "needs --tls-ca"),
        (Credentials(secured.ours.certificate, own.certificate), "must be given together with --tls-key"),
        (Credentials(tmp_path / "none"), "No such file"),
        (Credentials(str(tmp_path / "none")), "No such file"),
        (Credentials(token_file=str(tmp_path / "none")), "No such file"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            Client(credentials=wrong)


def test_the_servers_files_are_checked_and_named(secured: Secured, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="certificate and private_key must be set together; missing: private_key"):
        ApiConfig(certificate=tmp_path / "c")
    with pytest.raises(ValueError, match="missing: certificate, private_key"):
        ApiConfig(ca_certificates=tmp_path / "c")
    empty = tmp_path / "empty"
    empty.touch(0o600)
    settings = ApiConfig(certificate=secured.settings["certificate"], private_key=empty)
    with pytest.raises(InvalidInput, match=r"api\.private_key: .* is not a PEM file"):
        ApiServer(settings, StatusBoard(), lambda _: None, LeaseTokens())
