"""The reach of the controller and the roles of its callers, in the words of ``signalbox serve --check``."""

from typing import Any

import pytest

from controller.config import Config
from controller.serving import exposure

TLS = {"certificate": "c.pem", "private_key": "c.key"}
MUTUAL = {**TLS, "ca_certificates": "ca.pem"}
TOKENS = {"tokens": "t.toml"}
OPEN = {"listen": ["0.0.0.0:1"]}
SOCKET = {"listen": ["unix:/s"]}


def said_of_api(**api: Any) -> str:
    return next(exposure.who_may(Config.model_validate({"api": api}))).partition(": ")[2]


def missing(**api: Any) -> str:
    found = list(exposure.problems(Config.model_validate({"api": api}).api))
    return found[0].message.partition("Missing: ")[2].partition(". To allow")[0] if found else ""


@pytest.mark.parametrize(("api", "expected"), [
    ({}, "any program on this machine is an operator"),
    (TOKENS, "whoever has a token of t.toml, with the token's role"),
    (OPEN, "ANYONE who reaches it is an operator, and what is sent can be read"),
    ({**OPEN, **TLS}, "ANYONE who reaches it, through TLS, is an operator"),
    ({**OPEN, **TLS, **TOKENS}, "whoever has a token of t.toml, with the token's role"),
    ({**OPEN, **MUTUAL}, "whoever has a certificate that ca.pem signed is an operator"),
    ({**OPEN, **MUTUAL, **TOKENS},
     "whoever has a certificate that ca.pem signed has the role that t.toml gives to it or to its token"),
    ({**OPEN, **TOKENS}, "nobody: tokens are accepted only through TLS, a Unix socket or loopback"),
    (SOCKET, "users who may open it (mode 0600) as operator"),
    ({**SOCKET, "socket_mode": "0666"}, "any program on this machine (mode 0666) as operator"),
    ({**SOCKET, **TOKENS, "socket_mode": "0660", "socket_role": "reader"},
     "users who may open it (mode 0660) as reader, those with a token of t.toml with the token's role"),
    ({**SOCKET, **TOKENS, "socket_role": "none"}, "those with a token of t.toml with the token's role"),
    ({**OPEN, **TLS, **TOKENS, "proxy_socket": "/p"},
     "through HAProxy at /p: whoever has a token of t.toml, with the token's role"),
    ({**SOCKET, "socket_role": "none"}, "nobody: api.socket_role is 'none', and there is no api.tokens"),
])  # fmt: skip
def test_each_api_address_says_who_may_do_what(api: dict[str, Any], expected: str) -> None:
    assert said_of_api(**api) == expected


def test_metrics_and_openflow_say_who_can_reach_them() -> None:
    beyond = Config.model_validate({"metrics": {"host": "0.0.0.0"}, "openflow": {"host": "::", **MUTUAL}})
    assert list(exposure.who_may(beyond))[1:] == [
        "metrics 0.0.0.0:9464: ANYONE who reaches it can read them",
        "OpenFlow :::6653: whoever has a certificate that ca.pem signed is taken for a switch",
    ]


def test_members_are_believed_whoever_they_say_calls() -> None:
    store = {"store": "etcd://127.0.0.1:1"}
    tls = Config.model_validate({**store, "members": {"api": "10.0.0.1:2", **MUTUAL, "certificate_names": ["a", "b"]}})
    socket = Config.model_validate({**store, "members": {"api": "unix:/m"}})
    assert [list(exposure.who_may(config))[1] for config in (tls, socket)] == [
        "members 10.0.0.1:2: whoever has a certificate for a, b that ca.pem signed, as any caller, "
        "while this controller is active",
        "members unix:/m: users who may open it, as any caller, while this controller is active",
    ]


def test_an_address_of_the_network_without_haproxy_is_doubted() -> None:
    for api in ({}, SOCKET, {**OPEN, "proxy_socket": "/p"}):
        assert list(exposure.unguarded(Config.model_validate({"api": api}).api)) == []
    doubt = "0.0.0.0:1 can be reached from the network without HAProxy before it: set api.proxy_socket"
    assert list(exposure.unguarded(Config.model_validate({"api": OPEN}).api)) == [doubt]


IDENTITY = "api.ca_certificates or api.tokens, which say who may call"
CERTIFICATE = "api.certificate and api.private_key, for TLS"


@pytest.mark.parametrize(("api", "expected"), [
    ({}, ""),
    (SOCKET, ""),
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
