"""Who a caller is, from what gRPC says of its connection."""

from __future__ import annotations

import pytest

from controller.api.gate import Peer, peer_of

TLS = {
    "transport_security_type": [b"ssl"],
    "x509_common_name": [b"worker"],
    "x509_subject_alternative_name": [b"worker.example.org", b"worker"],
}


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("ipv4:192.0.2.1:40000", Peer("192.0.2.1:40000")),
        ("ipv4:127.0.0.1:40000", Peer("127.0.0.1:40000", private=True)),
        ("ipv6:%5B::1%5D:40000", Peer("[::1]:40000", private=True)),
        ("ipv6:[::1]:40000", Peer("[::1]:40000", private=True)),
        ("ipv6:%5B2001:db8::1%5D:40000", Peer("[2001:db8::1]:40000")),
        ("ipv6:%5Bfe80::1%25eth0%5D:40000", Peer("[fe80::1%eth0]:40000")),
        ("ipv6:%5B::ffff:127.0.0.1%5D:40000", Peer("[::ffff:127.0.0.1]:40000", private=True)),
        ("ipv6:%5B::ffff:192.0.2.1%5D:40000", Peer("[::ffff:192.0.2.1]:40000")),
        ("unix:", Peer("unix", socket=True, private=True)),
        ("unix:/run/api.sock user 7", Peer("/run/api.sock user 7", socket=True, private=True)),
        ("unknown:", Peer("")),
        ("", Peer("")),
    ],
)
def test_a_connection_is_a_socket_private_or_neither(name: str, peer: Peer) -> None:
    assert peer_of(name, {}) == peer


def test_through_tls_nobody_can_read_and_each_name_of_the_certificate_counts_once() -> None:
    peer = peer_of("ipv4:192.0.2.1:40000", TLS)
    assert peer.private
    assert peer.names == ("worker.example.org", "worker")
