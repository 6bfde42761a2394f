"""What jobs demand of the fabric: T0 of every phase, set by its busiest NIC, and each pair's bit/s (see ``problem``).

In: the virtual links of one job, the rates of NICs. Out: seconds, and bit/s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from signalbox.jobs.collectives import VirtualLink
from signalbox.jobs.spec import Transport


class Overhead(NamedTuple):
    """Bytes on the wire per byte of payload: ``header`` more of its own direction, ``answer`` of the other."""

    header: float
    answer: float


OVERHEAD: Mapping[Transport, Overhead] = {
    Transport.TCP: Overhead(66 / 1448, 66 / (2 * 1448)),
    Transport.ROCE_V2: Overhead(58 / 1024, 0.0),
}
"""TCP over Ethernet with 1,500 bytes and time stamps, one acknowledgement for two segments (RFC 1122, 4.2.3.2). RoCEv2
with a path MTU of 1,024; one acknowledgement answers a whole message. Preamble, checksum and gap of Ethernet are not
counted: port counters and shapers do not count them either."""

PAYLOAD_ONLY = Overhead(0.0, 0.0)


def ideal_time_s(
    virtual_links: Iterable[VirtualLink], nic_bps: Mapping[str, float], overhead: Overhead = PAYLOAD_ONLY
) -> dict[int, float]:
    """T0 of each phase in seconds: the largest (bits through a NIC in one direction / NIC rate), phases ascending.

    ``nic_bps``: rate of each address's NIC, bit/s per direction. Raises ``KeyError`` for an address without one.
    """
    return {phase: nic.seconds for phase, nic in _busiest(virtual_links, nic_bps, overhead).items()}


class _Busiest(NamedTuple):
    """A NIC that takes longest for what passes it in one direction."""

    seconds: float
    bits: float
    bps: float


def _busiest(
    virtual_links: Iterable[VirtualLink], nic_bps: Mapping[str, float], overhead: Overhead
) -> dict[int, _Busiest]:
    """Per phase, ascending."""
    header, answer = overhead
    through: defaultdict[tuple[int, str, str], float] = defaultdict(int)
    for link in virtual_links:
        size = link.bytes * (1 + header) if header else link.bytes
        through[link.phase, link.src_ip, "out"] += size
        through[link.phase, link.dst_ip, "in"] += size
        if answer:
            through[link.phase, link.dst_ip, "out"] += link.bytes * answer
            through[link.phase, link.src_ip, "in"] += link.bytes * answer
    found: dict[int, _Busiest] = {}
    for (phase, ip, _), amount in sorted(through.items()):
        nic = _Busiest(8 * amount / nic_bps[ip], 8 * amount, nic_bps[ip])
        if phase not in found or nic.seconds > found[phase].seconds:
            found[phase] = nic
    return found


def ideal_communication_s(
    virtual_links: Iterable[VirtualLink], nic_bps: Mapping[str, float], overhead: Overhead = PAYLOAD_ONLY
) -> float:
    """Seconds of communication per iteration on an idle fabric: the phases' T0, one after the other."""
    return sum(ideal_time_s(virtual_links, nic_bps, overhead).values())


def demands(
    virtual_links: Sequence[VirtualLink], nic_bps: Mapping[str, float]
) -> dict[tuple[str, str], tuple[tuple[int, float], ...]]:
    """The demand of every pair of addresses of one job: (phase, bit/s) in ascending phase order. Raises ``KeyError``
    for an address without NIC rate.

    Demands are parts of what the busiest NIC carries, times its rate: a flow that has all of it demands exactly that
    rate, and demands do not change when all bytes are multiplied by one number."""
    busiest = _busiest(virtual_links, nic_bps, PAYLOAD_ONLY)
    bits: defaultdict[tuple[str, str], defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for link in virtual_links:
        bits[link.src_ip, link.dst_ip][link.phase] += 8 * link.bytes
    return {
        pair: tuple(
            (phase, amount / busiest[phase].bits * busiest[phase].bps)
            for phase, amount in sorted(phases.items())
            if amount
        )
        for pair, phases in bits.items()
    }
