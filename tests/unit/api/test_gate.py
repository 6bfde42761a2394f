"""Identification of callers from gRPC's description of their connection, and the names in a certificate."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.api import certificate_names
from controller.api.errors import NoLeader
from controller.api.gate import Debts, Gate
from controller.api.identities import Caller, Identities, Role
from controller.api.peers import Peer, fields_of, forwarded_peer, peer_of, proxied_peer
from controller.config import SocketRole
from controller.status import StatusBoard
from signalbox.errors import Exhausted, Unauthenticated
from tests.support.wire.certificates import Authority

TLS = {
    "transport_security_type": [b"ssl"],
    "x509_common_name": [b"worker"],
    "x509_subject_alternative_name": [b"worker.example.org", b"worker"],
}


@pytest.mark.parametrize(("name", "peer"), [
    ("ipv4:192.0.2.1:40000", Peer("192.0.2.1:40000")),
    ("ipv4:127.0.0.1:40000", Peer("127.0.0.1:40000", private=True)),
    ("ipv6:%5B::1%5D:40000", Peer("[::1]:40000", private=True)),
    ("ipv6:[::1]:40000", Peer("[::1]:40000", private=True)),
    ("ipv6:%5B2001:db8::1%5D:40000", Peer("[2001:db8::1]:40000")),
    ("ipv6:%5Bfe80::1%25eth0%5D:40000", Peer("[fe80::1%eth0]:40000")),
    ("ipv6:%5B::ffff:127.0.0.1%5D:40000", Peer("[::ffff:127.0.0.1]:40000", private=True)),
    ("ipv6:%5B::ffff:192.0.2.1%5D:40000", Peer("[::ffff:192.0.2.1]:40000")),
    ("unix:", Peer("unix", socket=True, private=True)),
    ("unknown:", Peer("")),
    ("", Peer("")),
])  # fmt: skip
def test_a_connection_is_a_socket_private_or_neither(name: str, peer: Peer) -> None:
    assert peer_of(name, {}) == peer


def test_through_tls_nobody_can_read_and_each_name_of_the_certificate_counts_once() -> None:
    peer = peer_of("ipv4:192.0.2.1:40000", TLS)
    assert peer.private
    assert peer.names == ("worker.example.org", "worker")


SOCKET = Peer("unix", socket=True, private=True)
LOOPBACK = Peer("127.0.0.1:1", private=True)
NETWORK = Peer("192.0.2.1:1")
OPERATOR, READER = Caller("", Role.OPERATOR), Caller("", Role.READER)


@pytest.fixture
def identities(tmp_path: Path) -> Identities:
    file = tmp_path / "tokens.toml"
    file.touch(0o600)
    file.write_text('[[certificate]]\nname = "worker"\nrole = "reader"\n')
    return Identities.load(file)


def certified(*names: str) -> Peer:
    return Peer("192.0.2.1:1", private=True, names=names)


def context(*fields: tuple[str, str | bytes]) -> Any:
    return SimpleNamespace(invocation_metadata=lambda: (("user-agent", "grpc"), *fields))


def identified(peer: Peer, identities: Identities | None, socket_role: str = "operator") -> Caller:
    gate = Gate(StatusBoard(), identities, SocketRole(socket_role), lambda _: peer, Debts(1.0))
    return gate._identify(peer, context())


def test_without_a_tokens_file_everyone_is_an_operator_but_through_a_socket_what_its_role_says() -> None:
    assert identified(LOOPBACK, None) == identified(NETWORK, None) == identified(SOCKET, None) == OPERATOR
    assert identified(certified("worker"), None) == Caller("worker", Role.OPERATOR)
    assert identified(SOCKET, None, "reader") == READER
    with pytest.raises(Unauthenticated):
        identified(SOCKET, None, "none")


def test_with_a_tokens_file_only_a_socket_needs_neither_token_nor_certificate(identities: Identities) -> None:
    assert identified(SOCKET, identities) == OPERATOR
    assert identified(SOCKET, identities, "reader") == READER
    assert identified(certified("worker"), identities).name == "worker"
    for peer in (LOOPBACK, NETWORK, certified("stranger")):
        with pytest.raises(Unauthenticated):
            identified(peer, identities)


def test_a_certificate_without_a_role_is_named_with_what_is_to_be_added(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.touch(0o600)
    file.write_text("".join(f'[[certificate]]\nname = "{name}"\nrole = "{name}"\n' for name in ("reader", "operator")))
    identities = Identities.load(file)
    for names, why in (
        (("w\n1", "worker"), r"add a [[certificate]] with one of its names (w\n1, worker) to the file that api.tokens"),
        (("reader", "operator"), "belong to different callers: reader, operator"),
    ):
        with pytest.raises(Unauthenticated) as error:
            identified(certified(*names), identities)
        assert why in str(error.value)


def test_who_cannot_be_told_is_nobody(identities: Identities) -> None:
    for configured in (identities, None):
        with pytest.raises(Unauthenticated, match="the caller is unknown"):
            identified(Peer(""), configured)


FIELDS = (("x-signalbox-address", "192.0.2.1"), ("x-signalbox-port", "40000"), ("x-signalbox-tls", "1"))
NOBODY = Peer("")


def peer(*fields: tuple[str, str | bytes]) -> Peer:
    return proxied_peer(context(*fields))


def of(address: str, tls: str = "0") -> Peer:
    return peer(("x-signalbox-address", address), ("x-signalbox-port", "7"), ("x-signalbox-tls", tls))


def test_a_peer_is_private_through_tls_or_on_loopback() -> None:
    assert peer(*FIELDS) == Peer("192.0.2.1:40000", private=True)
    assert of("192.0.2.1") == Peer("192.0.2.1:7")
    assert of("127.0.0.1") == Peer("127.0.0.1:7", private=True)
    assert of("2001:db8::1") == Peer("[2001:db8::1]:7")
    assert of("::ffff:192.0.2.1") == Peer("192.0.2.1:7")
    assert of("::ffff:127.0.0.1") == Peer("127.0.0.1:7", private=True)


@pytest.mark.parametrize("fields", [
    (),
    FIELDS[1:],
    FIELDS[:2],
    (*FIELDS, FIELDS[0]),
    (*FIELDS, ("x-signalbox-address", "192.0.2.2")),
    (*FIELDS, ("x-signalbox-other", "1")),
    (("x-signalbox-address", "192.0.2.1, 192.0.2.2"), *FIELDS[1:]),
    (("x-signalbox-address", ""), *FIELDS[1:]),
    (*FIELDS, ("x-signalbox-certificate-bin", b"no certificate")),
])  # fmt: skip
def test_who_is_not_said_exactly_once_is_nobody(fields: tuple[tuple[str, str | bytes], ...]) -> None:
    assert peer(*fields) == NOBODY


MEMBER = {"transport_security_type": [b"ssl"], "x509_common_name": [b"b"]}


def forwarded(*fields: tuple[str, str | bytes], auth: Any = MEMBER, link: str = "ipv4:10.0.0.2:1") -> Peer:
    def leads() -> bool:
        return True

    call = SimpleNamespace(invocation_metadata=lambda: fields, peer=lambda: link, auth_context=lambda: auth)
    return forwarded_peer({"a", "b"}, leads, cast(Any, call))


@pytest.mark.parametrize("caller", [
    Peer("192.0.2.1:40000"), Peer("192.0.2.1:40000", private=True), Peer("[2001:db8::1]:7", private=True),
    Peer("127.0.0.1:7", private=True), Peer(""),
])  # fmt: skip
def test_the_leader_sees_the_peer_that_the_member_sees(caller: Peer) -> None:
    assert forwarded(*fields_of(caller, SocketRole.NONE)) == caller


@pytest.mark.parametrize("role", SocketRole)
def test_a_socket_has_the_role_that_the_member_gives_to_it(role: SocketRole) -> None:
    peer = forwarded(*fields_of(SOCKET, role), link="unix:", auth={})
    assert (peer.socket, peer.private, peer.socket_role) == (True, True, role)
    if role is SocketRole.NONE:
        with pytest.raises(Unauthenticated):
            identified(peer, None, "operator")
    else:
        assert identified(peer, None, "none").role == role.value


def test_header_fields_of_no_member_or_that_contradict_each_other_name_nobody() -> None:
    for stranger in ({}, TLS, {**MEMBER, "x509_common_name": [b"B"]}):
        with pytest.raises(Unauthenticated, match="only members may call here"):
            forwarded(*FIELDS, auth=stranger)
    role = ("x-signalbox-socket", "operator")
    for fields in ((role, role), (("x-signalbox-socket", "root"),), (), FIELDS[1:]):
        assert forwarded(*fields) == NOBODY
    assert peer(role, *FIELDS) == NOBODY, "HAProxy never sets it"


def test_a_leader_that_may_have_been_replaced_hears_no_member() -> None:
    with pytest.raises(NoLeader):
        forwarded_peer({"b"}, lambda: False, cast(Any, None))


def test_a_client_owes_what_is_beyond_a_second_s_calls_and_no_other_does() -> None:
    debts = Debts(10.0)
    debts.charge("a", 10.0, now=100.0)
    debts.refuse_debtor("a", now=100.0)
    debts.charge("a", 25.0, now=100.0)
    with pytest.raises(Exhausted, match="a has exceeded the limit of 10 calls per second") as error:
        debts.refuse_debtor("a", now=101.0)
    assert error.value.retry_s == pytest.approx(1.5)
    debts.refuse_debtor("b", now=101.0)
    debts.refuse_debtor("a", now=102.5)
    debts = Debts(10.0)
    debts.charge("a", 10.0, now=100.0)
    debts.charge("b", 10.0, now=100.5)
    debts.charge("c", 10.0, now=101.2)
    assert debts._paid_at.keys() == {"b", "c"}, "who owes nothing is forgotten"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "ours")


def test_alternative_names_come_first_and_each_name_once(authority: Authority) -> None:
    also = "DNS:a.example.org,DNS:worker,URI:spiffe://x/y,IP:192.0.2.1,IP:2001:db8::1,email:a@example.org"
    made = authority.sign("worker", also=also)
    names = ("a.example.org", "worker", "spiffe://x/y", "192.0.2.1", "2001:db8::1", "a@example.org")
    assert certificate_names.of(made.der) == names


def test_the_common_name_is_the_first_of_the_subject_and_not_of_the_authority(authority: Authority) -> None:
    """Certificates without extensions, which are of the older form, have names too."""
    for name in ("worker", "w" * 64):
        assert certificate_names.of(authority.sign(name, file=f"named{len(name)}").der) == (name,)
    assert certificate_names.of(authority.sign("worker/CN=operator", file="two").der) == ("worker",)
    assert certificate_names.of(authority.sign_expired("worker").der) == ("worker",)


def test_bytes_that_are_no_certificate_are_an_error(authority: Authority) -> None:
    whole = authority.sign("cut", also="DNS:a").der
    others = b"\x30", b"\x30\x03\x02\x01\x01", b"\xff" * 40
    for cut in (*others, *(whole[:size] for size in range(0, len(whole), 7))):
        with pytest.raises(ValueError):
            certificate_names.of(cut)


def test_no_change_of_a_byte_raises_anything_else(authority: Authority) -> None:
    whole = authority.sign("changed", also="DNS:a,IP:192.0.2.1").der
    for at in range(len(whole)):
        for value in (0, 1, 0x80, 0xFF):
            changed = whole[:at] + bytes([value]) + whole[at + 1 :]
            try:
                certificate_names.of(changed)
            except ValueError:
                continue
