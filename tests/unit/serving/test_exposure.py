"""The reach of the controller, as ``signalbox serve --check`` says, and HAProxy's configuration made from the API's.

``tests/wire/test_haproxy.py`` runs HAProxy with it."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from controller.config import ApiConfig, Config
from controller.serving import exposure, haproxy
from signalbox.errors import InvalidInput
from tests.support.command_line import Signalbox, signalbox

__all__ = ("signalbox",)

SOCKET = "/run/signalbox/proxy/api.sock"
TCP = ("192.0.2.1:50051",)


def problems(**api: Any) -> dict[str, str]:
    return {problem.path: problem.message for problem in haproxy.problems(ApiConfig(**api))}


def lines(**api: Any) -> list[str]:
    text = haproxy.configuration(ApiConfig(**{"listen": TCP, "proxy_socket": SOCKET, **api}))
    return [line.strip() for line in text.splitlines()]


def test_it_listens_at_all_addresses_but_unix_sockets() -> None:
    listen = ("192.0.2.1:1", "[2001:db8::1]:2", "localhost:3", "unix:/run/api.sock")
    found = [line for line in lines(listen=listen) if line.startswith("bind")]
    assert found == ["bind 192.0.2.1:1 proto h2", "bind ipv6@[2001:db8::1]:2 proto h2", "bind localhost:3 proto h2"]


def test_tls_and_client_certificates_are_those_of_the_configuration() -> None:
    files = {"certificate": "/etc/s/c.pem", "private_key": "/etc/s/c.pem.key"}
    assert "bind 192.0.2.1:50051 proto h2 ssl crt /etc/s/c.pem alpn h2" in lines(**files)
    mutual = lines(**files, ca_certificates="/etc/s/ca.pem")
    assert "bind 192.0.2.1:50051 proto h2 ssl crt /etc/s/c.pem alpn h2 ca-file /etc/s/ca.pem verify required" in mutual


def test_what_a_client_claims_is_deleted_before_anything_is_set() -> None:
    rules = [line for line in lines() if line.startswith("http-request")]
    assert rules[0] == "http-request del-header x-signalbox- -m beg"
    assert sum("set-header x-signalbox-" in rule for rule in rules) == 4


@pytest.mark.parametrize("name", ["silent_s", "stalled_s", "max_client_calls_per_s", "max_client_connections_per_s"])
@pytest.mark.parametrize("value", [1e10, float("inf"), float("nan")])
def test_numbers_that_haproxy_cannot_take_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValidationError, match=name):
        ApiConfig(**{name: value})


def test_what_haproxy_cannot_do_is_a_problem() -> None:
    assert problems() == {"api.proxy_socket": "is missing: the socket at which HAProxy forwards calls"}
    files = {"certificate": "/etc/c.pem", "private_key": "/etc/other.key", "ca_certificates": "/etc/c\nbind :1"}
    found = problems(listen=("127.0.0.1:0", "unix:/a"), proxy_socket="run/a socket", **files)
    assert "needs a port" in found["api.listen[0]"]
    assert "absolute path" in found["api.proxy_socket"]
    assert "only in the certificate's file or in /etc/c.pem.key" in found["api.private_key"]
    assert "absolute path" in found["api.ca_certificates"]
    assert "has no address" in problems(listen=("unix:/a",), proxy_socket=SOCKET)["api.listen"]
    with pytest.raises(InvalidInput):
        haproxy.configuration(ApiConfig())


def test_the_command_prints_it(signalbox: Signalbox, tmp_path: Path) -> None:
    file = tmp_path / "signalbox.toml"
    file.write_text(f'[api]\nlisten = ["192.0.2.1:50051"]\nproxy_socket = "{SOCKET}"\n')
    printed = signalbox("serve", "--config", file, "--print-haproxy")
    assert printed.out == haproxy.configuration(ApiConfig(listen=TCP, proxy_socket=Path(SOCKET)))


TLS = {"certificate": "c.pem", "private_key": "c.key"}
MUTUAL = {**TLS, "ca_certificates": "ca.pem"}
TOKENS = {"tokens": "t.toml"}
OPEN = {"listen": ["0.0.0.0:1"]}
UNIX = {"listen": ["unix:/s"]}


def missing(**api: Any) -> str:
    found = list(exposure.problems(Config.model_validate({"api": api}).api))
    return found[0].message.partition("Missing: ")[2].partition(". To allow")[0] if found else ""


@pytest.mark.parametrize(("api", "expected"), [
    ({}, "any program on this machine is an operator"),
    (TOKENS, "callers with a token of t.toml have the token's role"),
    (OPEN, "ANYONE who reaches it is an operator, and others can read what is sent"),
    ({**OPEN, **TLS}, "ANYONE who reaches it, through TLS, is an operator"),
    ({**OPEN, **TLS, **TOKENS}, "callers with a token of t.toml have the token's role"),
    ({**OPEN, **MUTUAL}, "any client with a certificate that ca.pem signed is an operator"),
    ({**OPEN, **MUTUAL, **TOKENS},
     "any client with a certificate that ca.pem signed has the role that t.toml gives to it or to its token"),
    ({**OPEN, **TOKENS}, "no caller: tokens are accepted only through TLS, a Unix socket or loopback"),
    (UNIX, "users who may open it (mode 0600) as operator"),
    ({**UNIX, "socket_mode": "0666"}, "any program on this machine (mode 0666) as operator"),
    ({**UNIX, **TOKENS, "socket_mode": "0660", "socket_role": "reader"},
     "users who may open it (mode 0660) as reader, callers with a token of t.toml with the token's role"),
    ({**UNIX, **TOKENS, "socket_role": "none"}, "callers with a token of t.toml with the token's role"),
    ({**OPEN, **TLS, **TOKENS, "proxy_socket": "/p"},
     "through HAProxy at /p: callers with a token of t.toml have the token's role"),
    ({**UNIX, "socket_role": "none"}, "no caller: api.socket_role is 'none', and there is no api.tokens"),
])  # fmt: skip
def test_each_api_address_says_who_may_do_what(api: dict[str, Any], expected: str) -> None:
    assert next(exposure.who_may(Config.model_validate({"api": api}))).partition(": ")[2] == expected


def test_metrics_and_openflow_say_who_can_reach_them() -> None:
    beyond = Config.model_validate({"metrics": {"host": "0.0.0.0"}, "openflow": {"host": "::", **MUTUAL}})
    assert list(exposure.who_may(beyond))[1:] == [
        "metrics 0.0.0.0:9464: ANYONE who reaches it can read them",
        "OpenFlow :::6653: any client with a certificate that ca.pem signed can act as a switch",
    ]


def test_members_are_believed_whoever_they_say_calls() -> None:
    store = {"store": "etcd://127.0.0.1:1"}
    tls = Config.model_validate({**store, "members": {"api": "10.0.0.1:2", **MUTUAL, "certificate_names": ["a", "b"]}})
    socket = Config.model_validate({**store, "members": {"api": "unix:/m"}})
    assert [list(exposure.who_may(config))[1] for config in (tls, socket)] == [
        "members 10.0.0.1:2: any client with a certificate for a, b that ca.pem signed can pose as any caller, "
        "while this controller is active",
        "members unix:/m: users who may open it can pose as any caller, while this controller is active",
    ]


def test_an_address_of_the_network_without_haproxy_is_doubted() -> None:
    for api in ({}, UNIX, {**OPEN, "proxy_socket": "/p"}):
        assert list(exposure.unguarded(Config.model_validate({"api": api}).api)) == []
    doubt = "0.0.0.0:1 can be reached from the network without HAProxy before it: set api.proxy_socket"
    assert list(exposure.unguarded(Config.model_validate({"api": OPEN}).api)) == [doubt]


IDENTITY = "api.ca_certificates or api.tokens, which say who may call"
CERTIFICATE = "api.certificate and api.private_key, for TLS"


@pytest.mark.parametrize(("api", "expected"), [
    ({}, ""),
    (UNIX, ""),
    ({"listen": ["[::1]:1", "localhost:1"]}, ""),
    ({"listen": ["no.host.invalid:1"]}, ""),  # another check reports its error
    (OPEN, f"{CERTIFICATE}; {IDENTITY}"),
    ({"listen": ["127.0.0.1:1", "[::]:1"]}, f"{CERTIFICATE}; {IDENTITY}"),
    ({**OPEN, **TOKENS}, CERTIFICATE),
    ({**OPEN, **TLS}, IDENTITY),
    ({**OPEN, **TLS, **TOKENS}, ""),
    ({**OPEN, **MUTUAL}, ""),
    ({**OPEN, "insecure": True}, ""),
])  # fmt: skip
def test_an_open_address_without_tls_or_an_identity_is_a_problem(api: dict[str, Any], expected: str) -> None:
    assert missing(**api) == expected


def test_the_problem_names_the_address_and_how_to_open_it_all_the_same() -> None:
    (problem,) = exposure.problems(Config.model_validate({"api": {"listen": ["127.0.0.1:1", "0.0.0.0:7"]}}).api)
    assert problem.path == "api.listen[1]"
    assert problem.message.startswith("0.0.0.0:7 can be reached from the network")
    assert problem.message.endswith("set api.insecure = true")
