"""Bytes of connections, as ``ss -tin`` writes them."""

from tests.support.lab.connections import Connection, parsed, received_from

LISTED = """\
0      0              10.0.1.1:29500      10.0.1.2:41000
\t cubic wscale:7,7 rto:204 bytes_sent:10 bytes_acked:11 bytes_received:500 segs_out:9 minrtt:0.02
0      0      [::ffff:10.0.1.1]:35555 [::ffff:10.0.1.2]:35001
\t cubic wscale:7,7 bytes_received:64 segs_out:2
0      0         10.0.1.1%eth0:35556      10.0.1.2:35002
\t cubic wscale:7,7 segs_out:2
"""


def test_addresses_and_received_bytes_are_read() -> None:
    assert list(parsed(LISTED)) == [
        Connection("10.0.1.1", 29500, "10.0.1.2", 41000, 500),
        Connection("10.0.1.1", 35555, "10.0.1.2", 35001, 64),
        Connection("10.0.1.1", 35556, "10.0.1.2", 35002, 0),
    ]


def test_bytes_are_added_per_direction() -> None:
    assert received_from(parsed(LISTED)) == {("10.0.1.2", "10.0.1.1"): 564}
