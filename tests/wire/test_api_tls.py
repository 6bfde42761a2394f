"""The API through TLS and mutual TLS, with certificates made here, and with tokens."""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from structlog.testing import capture_logs

from controller.api.lease_tokens import LeaseTokens
from controller.api.relay.passing import PREFACE
from controller.api.server import ApiServer
from controller.config import ApiConfig
from controller.status import StatusBoard
from mininet_topos.lab.record import wait_for
from signalbox.client import Client, Unreachable
from signalbox.credentials import Credentials
from signalbox.errors import InvalidInput, Unauthenticated
from tests.support.wire.certificates import Authority, Certificate
from tests.support.wire.control_stand_in import Running, running_api

TOKEN = "sbx_operator"
TOKENS = f"""
[[token]]
name = "ops"
sha256 = "{hashlib.sha256(TOKEN.encode()).hexdigest()}"
role = "operator"

[[certificate]]
name = "scheduler"
role = "reader"
"""
HERE = "IP:127.0.0.1,DNS:localhost"


class Secured(NamedTuple):
    """``settings``: of the server's TLS, without authorities."""

    directory: Path
    ours: Authority
    other: Authority
    settings: dict[str, Any]

    def tokens(self) -> Path:
        file = self.directory / "tokens.toml"
        file.touch(0o600)
        file.write_text(TOKENS)
        return file

    def token_file(self, token: str = TOKEN) -> Path:
        file = self.directory / "token"
        file.touch(0o600)
        file.write_text(token + "\n")
        return file

    def credentials(self, shown: Certificate | None = None, token: str | None = None) -> Credentials:
        """Of a client that trusts our authority."""
        own = shown or (None, None)
        return Credentials(str(self.ours.certificate), own[0], own[1], self.token_file(token) if token else None)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    directory = tmp_path_factory.mktemp("certificates")
    ours, other = Authority(directory, "ours"), Authority(directory, "other")
    server = ours.sign("controller", also=HERE)
    return Secured(directory, ours, other, {"certificate": server.certificate, "private_key": server.private_key})


@pytest.fixture(scope="module")
def mutual(secured: Secured) -> Iterator[Running]:
    with running_api(**secured.settings, ca_certificates=secured.ours.certificate) as api:
        yield api


def status(address: str, credentials: Credentials) -> object:
    with Client(address, timeout_s=5, credentials=credentials) as client:
        return client.get_status()


def refused(api: Running) -> int:
    return api.control.board.api_refused["tls"]  # from the start: the alert needs the 0 before the first one


# ---- failed handshakes


def shaken(address: str, context: ssl.SSLContext) -> None:
    """Until the server has accepted the client: it has sent its settings."""
    host, port = address.split(":")
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), timeout=5) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as tls,
    ):
        tls.sendall(PREFACE + bytes(3) + b"\x04" + bytes(5))
        if tls.recv(9)[3:4] != b"\x04":
            raise ConnectionError("no settings")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_each_handshake_that_fails_is_counted_with_what_happened(secured: Secured, version: ssl.TLSVersion) -> None:
    def context(shown: Certificate | None, trusted: Authority = secured.ours) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(trusted.certificate))
        made.minimum_version = made.maximum_version = version
        if shown:
            made.load_cert_chain(*shown)
        return made

    good = secured.ours.sign("scheduler")
    with (
        running_api(**secured.settings, ca_certificates=secured.ours.certificate) as api,
        capture_logs() as lines,
    ):
        for attempt in (context(None), context(secured.other.sign("x")), context(secured.ours.sign_expired("x"))):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                shaken(api.addresses[0], attempt)
        with pytest.raises(ssl.SSLCertVerificationError):
            shaken(api.addresses[0], context(good, secured.other))
        shaken(api.addresses[0], context(good))
        assert status(api.addresses[0], secured.credentials(good))
        wait_for(lambda: refused(api) == 4, "the count", 60)
    why = [line["why"] for line in lines if line.get("reason") == "tls"]
    assert len(why) == 4
    assert why[:3] == ["the handshake was refused"] * 3
    assert why[3] in ("the handshake was refused", "the client ended the handshake")


def test_tls_where_there_is_none_is_counted_and_who_speaks_it_learns_so(secured: Secured) -> None:
    with running_api() as api:
        with pytest.raises(Unreachable, match="it does not speak TLS"):
            status(api.addresses[0], secured.credentials())
        wait_for(lambda: refused(api) >= 1, "the count", 60)


def test_what_never_fails_is_not_counted(secured: Secured, mutual: Running) -> None:
    before = refused(mutual)
    good = secured.credentials(secured.ours.sign("anyone"))
    for _ in range(3):
        assert status(mutual.addresses[0], good)
    channel = good.channel(mutual.addresses[0], [])
    grpc.channel_ready_future(channel).result(timeout=60)
    channel.close()
    with pytest.raises(Unreachable):
        status(mutual.addresses[0], secured.credentials())
    wait_for(lambda: refused(mutual) > before, "the count", 60)
    assert refused(mutual) <= before + 2, "gRPC may connect a second time"


# ---- TLS


def test_a_client_that_trusts_the_authority_is_served(secured: Secured) -> None:
    with running_api(**secured.settings) as api:
        assert status(api.addresses[0], secured.credentials())


def test_a_client_that_trusts_another_authority_sends_nothing(secured: Secured) -> None:
    with running_api(**secured.settings) as api, pytest.raises(Unreachable, match="not of an authority in --tls-ca"):
        status(api.addresses[0], Credentials(secured.other.certificate))


def test_a_server_whose_certificate_is_for_another_address_is_refused(secured: Secured) -> None:
    wrong = secured.ours.sign("elsewhere", also="DNS:elsewhere.example.org")
    with (
        running_api(certificate=wrong.certificate, private_key=wrong.private_key) as api,
        pytest.raises(Unreachable, match="its certificate is not for this address"),
    ):
        status(api.addresses[0], secured.credentials())


def test_plain_connections_are_refused_where_tls_is_configured(secured: Secured) -> None:
    with running_api(**secured.settings) as api:
        with pytest.raises(Unreachable, match="may want TLS"):
            status(api.addresses[0], Credentials())
        assert refused(api) >= 1


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
            socket.create_connection((host, int(port)), timeout=5) as sock,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            context.wrap_socket(sock, server_hostname="localhost")


def test_a_unix_socket_stays_plain_beside_tls(secured: Secured, tmp_path: Path) -> None:
    with running_api("127.0.0.1:0", f"unix:{tmp_path}/api.sock", **secured.settings) as api:
        assert status(api.addresses[0], secured.credentials())
        assert status(api.addresses[1], Credentials())
        assert status(api.addresses[1], secured.credentials())


# ---- mutual TLS


def test_a_certificate_of_the_authority_is_enough_without_tokens(secured: Secured, mutual: Running) -> None:
    assert status(mutual.addresses[0], secured.credentials(secured.ours.sign("anyone")))


def none(_: Secured) -> Certificate | None:
    return None


def of_another_authority(secured: Secured) -> Certificate:
    return secured.other.sign("scheduler")


def expired(secured: Secured) -> Certificate:
    return secured.ours.sign_expired("scheduler")


@pytest.mark.parametrize("shown", [none, of_another_authority, expired])
def test_a_client_without_a_valid_certificate_gets_no_connection(
    secured: Secured, mutual: Running, shown: Callable[[Secured], Certificate | None]
) -> None:
    before = refused(mutual)
    with pytest.raises(Unreachable, match=r"--tls-certificate|wants a client certificate"):
        status(mutual.addresses[0], secured.credentials(shown(secured)))
    wait_for(lambda: refused(mutual) > before, "the count", 60)


def test_authorities_can_be_replaced_while_the_server_runs(secured: Secured) -> None:
    settings = {**secured.settings, "ca_certificates": secured.ours.certificate}
    with running_api(**settings) as api:
        other = ApiConfig(**{**settings, "ca_certificates": secured.other.certificate})
        api.server.files.prepare_certificates(other)()
        assert status(api.addresses[0], secured.credentials(secured.other.sign("anyone")))
        with pytest.raises(Unreachable):
            status(api.addresses[0], secured.credentials(secured.ours.sign("anyone")))


def test_a_certificate_has_the_role_of_its_name_and_others_have_none(secured: Secured) -> None:
    settings = {**secured.settings, "ca_certificates": secured.ours.certificate, "tokens": secured.tokens()}
    with running_api(**settings) as api:
        assert status(api.addresses[0], secured.credentials(secured.ours.sign("scheduler")))
        by_other_name = secured.ours.sign("worker", also="DNS:scheduler")
        assert status(api.addresses[0], secured.credentials(by_other_name))
        with (
            capture_logs() as lines,
            pytest.raises(Unauthenticated, match=r"add a \[\[certificate\]\] with one of its names \(stranger\)"),
        ):
            status(api.addresses[0], secured.credentials(secured.ours.sign("stranger")))
        assert [line["certificate"] for line in lines if line["event"] == "audit"] == ["stranger"]
        # A token counts before the certificate, also when it is wrong.
        assert status(api.addresses[0], secured.credentials(secured.ours.sign("stranger"), TOKEN))
        with pytest.raises(Unauthenticated, match="the token is not known"):
            status(api.addresses[0], secured.credentials(secured.ours.sign("scheduler"), "sbx_wrong"))


# ---- tokens


def test_a_token_is_accepted_through_tls_a_socket_and_loopback(secured: Secured, tmp_path: Path) -> None:
    with running_api(**secured.settings, tokens=secured.tokens()) as api:
        assert status(api.addresses[0], secured.credentials(token=TOKEN))
        with pytest.raises(Unauthenticated, match="a token is needed; client certificates count only with"):
            status(api.addresses[0], secured.credentials())
    listen = "127.0.0.1:0", f"unix:{tmp_path}/api.sock"
    with running_api(*listen, tokens=secured.tokens(), socket_role="none") as api:
        for address in api.addresses:
            assert status(address, Credentials(token_file=secured.token_file()))
            with pytest.raises(Unauthenticated):
                status(address, Credentials())


def test_a_token_is_not_accepted_where_it_could_be_read_on_its_way(secured: Secured) -> None:
    """The machine's own address stands for one of the network: gRPC sees another peer than loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        own: str = probe.getsockname()[0]
    with running_api(f"{own}:0", tokens=secured.tokens(), insecure=True) as api:
        with pytest.raises(InvalidInput, match="only through TLS: give --tls-ca too"):
            Client(api.addresses[0], credentials=Credentials(token_file=secured.token_file()))
        careless = Client(api.addresses[0], credentials=Credentials())
        careless._metadata = (("authorization", f"Bearer {TOKEN}"),)
        with careless, pytest.raises(Unauthenticated, match="accepted only through TLS, a Unix socket or loopback"):
            careless.get_status()


@pytest.mark.parametrize(
    "metadata", [["Bearer"], ["Basic b3Bz"], [TOKEN], [f"bearer {TOKEN}"], [f"Bearer {TOKEN}"] * 2]
)
def test_other_forms_of_authorization_are_refused(secured: Secured, metadata: list[str]) -> None:
    with running_api(tokens=secured.tokens()) as api, Client(api.addresses[0]) as client:
        client._metadata = tuple(("authorization", value) for value in metadata)
        with pytest.raises(Unauthenticated, match="must be one 'Bearer TOKEN'"):
            client.get_status()


@pytest.mark.parametrize("content", ["", "two words", "t\u00f6ken", "a\nb"])
def test_a_file_without_a_token_is_an_error_before_any_call(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text(content)
    with pytest.raises(InvalidInput, match="is no file with one token"):
        Client("127.0.0.1:1", credentials=Credentials(token_file=tmp_path / "token"))


def test_incomplete_credentials_are_an_error(secured: Secured, tmp_path: Path) -> None:
    own = secured.ours.sign("client")
    for wrong, message in [
        (Credentials(tls_certificate=own.certificate, tls_key=own.private_key), "needs --tls-ca"),
        (Credentials(secured.ours.certificate, own.certificate), "belong together"),
        (Credentials(tmp_path / "none"), "No such file"),
        (Credentials(str(tmp_path / "none")), "No such file"),
        (Credentials(token_file=str(tmp_path / "none")), "No such file"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            Client(credentials=wrong)


def test_the_servers_files_are_checked_and_named(secured: Secured, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="certificate and private_key belong together; missing: private_key"):
        ApiConfig(certificate=tmp_path / "c")
    with pytest.raises(ValueError, match="missing: certificate, private_key"):
        ApiConfig(ca_certificates=tmp_path / "c")
    empty = tmp_path / "empty"
    empty.touch(0o600)
    settings = ApiConfig(certificate=secured.settings["certificate"], private_key=empty)
    with pytest.raises(InvalidInput, match=r"api\.private_key: .* is no PEM file"):
        ApiServer(settings, StatusBoard(), lambda _: None, LeaseTokens.of(None))
