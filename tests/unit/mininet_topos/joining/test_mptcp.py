"""Which TCP connections a Multipath TCP session consists of, from the output of ss."""

from __future__ import annotations

from controller.jobs.messages import Connected
from mininet_topos.joining.mptcp import Part, carrying, parsed

LISTED = """\
0      0      10.9.0.1:40502 10.9.0.2:5201
\t cubic rto:204 bytes_acked:185 bytes_received:2 tcp-ulp-mptcp flags:Mmec token:0000(id:0)/c1fa92da(id:0)
0      0      10.9.0.1:40514 10.9.0.2:5201
\t cubic rto:204 bytes_sent:638584 bytes_acked:638585 tcp-ulp-mptcp flags:Mmec token:0000(id:0)/abb05d4d(id:0) maplen:0
0      0      10.9.0.1:44703 10.9.0.2:9000
\t cubic rto:204 bytes_acked:442758 segs_out:315 tcp-ulp-mptcp flags:Jjec token:7da0f749(id:0)/abb05d4d(id:0) maplen:0
0      0      10.9.0.1:50125 10.9.0.2:9000
\t cubic bytes_acked:1 bytes_received:2 tcp-ulp-mptcp flags:Jjec token:a771db17(id:0)/c1fa92da(id:0) sfseq:2
0      0      10.9.0.1:41000 10.9.0.2:22
\t cubic rto:204 bytes_acked:9000000
"""
"""Of iperf3 (Linux 6.18, iproute2 6.1), shortened: a session for control and one for data, and a connection that is no
session's."""


def test_connections_are_told_by_their_session() -> None:
    assert list(parsed(LISTED)) == [
        Part("c1fa92da", Connected("10.9.0.1", 40502, "10.9.0.2", 5201), 187),
        Part("abb05d4d", Connected("10.9.0.1", 40514, "10.9.0.2", 5201), 638585),
        Part("abb05d4d", Connected("10.9.0.1", 44703, "10.9.0.2", 9000), 442758),
        Part("c1fa92da", Connected("10.9.0.1", 50125, "10.9.0.2", 9000), 3),
    ]


def test_only_sessions_that_carry_data_are_reported() -> None:
    assert {one.src_port for one in carrying(parsed(LISTED), "10.9.0.1")} == {40514, 44703}
    assert not carrying(parsed(LISTED), "10.9.0.3")
    assert not carrying([], "10.9.0.1")
