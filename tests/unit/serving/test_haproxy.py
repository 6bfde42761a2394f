"""HAProxy's configuration, made from the API's configuration. ``tests/wire/test_haproxy.py`` runs it."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from controller.config import ApiConfig
from controller.serving import haproxy
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
