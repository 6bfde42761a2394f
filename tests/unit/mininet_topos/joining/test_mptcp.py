"""The TCP connections of a Multipath TCP session, found in the output of ss."""

from mininet_topos.joining.mptcp import Part, carrying, parsed
from signalbox.jobs.reports import Connected

LISTED = """\
tcp   0      0      10.9.0.1:40502 10.9.0.2:5201
\t cubic rto:204 bytes_acked:185 bytes_received:2 tcp-ulp-mptcp flags:Mmec token:0000(id:0)/c1fa92da(id:0)
tcp   0      0      10.9.0.1:40514 10.9.0.2:5201
\t cubic rto:204 bytes_sent:638584 bytes_acked:638585 tcp-ulp-mptcp flags:Mmec token:0000(id:0)/abb05d4d(id:0) maplen:0
tcp   0      0      10.9.0.1:44703 10.9.0.2:9000
\t cubic rto:204 bytes_acked:442758 segs_out:315 tcp-ulp-mptcp flags:Jjec token:7da0f749(id:0)/abb05d4d(id:0) maplen:0
tcp   0      0      10.9.0.1:50125 10.9.0.2:9000
\t cubic bytes_acked:1 bytes_received:2 tcp-ulp-mptcp flags:Jjec token:a771db17(id:0)/c1fa92da(id:0) sfseq:2
tcp   0      1      10.9.0.1:49034 10.9.0.2:5201
\t cubic backoff:4 bytes_acked:3568757 tcp-ulp-mptcp flags:Mmec token:0000(id:0)/f59f4f0c(id:0) sfseq:1
tcp   0      0      10.9.0.1:41000 10.9.0.2:22
\t cubic rto:204 bytes_acked:9000000
mptcp 0      0      10.9.0.1:40502 10.9.0.2:5201
\t subflows:1 add_addr_accepted:1 subflows_max:1 remote_key token:c1fa92da write_seq:b03ed758c87aba7b
mptcp 0      0      10.9.0.1:40514 10.9.0.2:5201
\t subflows:1 add_addr_accepted:1 subflows_max:1 remote_key token:abb05d4d write_seq:df323f040649106b
"""
"""Output for iperf3 (Linux 6.18, iproute2 6.1), shortened.

It has a session for control and one for data, the rest of a session whose program has ended, and a connection without a
session."""


def test_connections_are_told_by_their_session() -> None:
    assert parsed(LISTED) == [
        Part("c1fa92da", Connected("10.9.0.1", 40502, "10.9.0.2", 5201), 187),
        Part("abb05d4d", Connected("10.9.0.1", 40514, "10.9.0.2", 5201), 638585),
        Part("abb05d4d", Connected("10.9.0.1", 44703, "10.9.0.2", 9000), 442758),
        Part("c1fa92da", Connected("10.9.0.1", 50125, "10.9.0.2", 9000), 3),
    ]


PEERS = ["10.9.0.2"]


def test_only_sessions_of_the_job_that_carry_data_are_reported() -> None:
    assert {one.src_port for one in carrying(parsed(LISTED), "10.9.0.1", PEERS)} == {40514, 44703}
    assert not carrying(parsed(LISTED), "10.9.0.3", PEERS)
    assert not carrying(parsed(LISTED), "10.9.0.1", ["10.9.0.3"])
    control = [part for part in parsed(LISTED) if part.session == "c1fa92da"]
    assert control
    assert not carrying(control, "10.9.0.1", PEERS), "the session has not carried data yet"
