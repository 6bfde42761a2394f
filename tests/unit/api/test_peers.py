"""Callers behind HAProxy, identified by the header fields that it sets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.api.peers import Peer, proxied_peer

FIELDS = (("x-signalbox-address", "192.0.2.1"), ("x-signalbox-port", "40000"), ("x-signalbox-tls", "1"))
NOBODY = Peer("")


def peer(*fields: tuple[str, str | bytes]) -> Peer:
    context: Any = SimpleNamespace(invocation_metadata=lambda: (("user-agent", "grpc"), *fields))
    return proxied_peer(context)


def of(address: str, tls: str = "0") -> Peer:
    return peer(("x-signalbox-address", address), ("x-signalbox-port", "7"), ("x-signalbox-tls", tls))


def test_a_peer_is_private_through_tls_or_on_loopback() -> None:
    assert peer(*FIELDS) == Peer("192.0.2.1:40000", private=True)
    assert of("192.0.2.1") == Peer("192.0.2.1:7")
    assert of("127.0.0.1") == Peer("127.0.0.1:7", private=True)
    assert of("2001:db8::1") == Peer("[2001:db8::1]:7")
    assert of("::ffff:192.0.2.1") == Peer("192.0.2.1:7")
    assert of("::ffff:127.0.0.1") == Peer("127.0.0.1:7", private=True)


@pytest.mark.parametrize(
    "fields",
    [
        (),
        FIELDS[1:],
        FIELDS[:2],
        (*FIELDS, FIELDS[0]),
        (*FIELDS, ("x-signalbox-address", "192.0.2.2")),
        (*FIELDS, ("x-signalbox-other", "1")),
        (("x-signalbox-address", "192.0.2.1, 192.0.2.2"), *FIELDS[1:]),
        (("x-signalbox-address", ""), *FIELDS[1:]),
        (*FIELDS, ("x-signalbox-certificate-bin", b"no certificate")),
    ],
)
def test_who_is_not_said_exactly_once_is_nobody(fields: tuple[tuple[str, str | bytes], ...]) -> None:
    assert peer(*fields) == NOBODY
