"""Demands of jobs on the fabric: the ideal time of each phase, and the rate of each pair of addresses.

The busiest NIC of a phase sets its ideal time. In: the virtual links of one job, and the rates of NICs. Out: seconds,
and bit/s."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from controller.jobs.job import Overhead
from signalbox.jobs.collectives import VirtualLink

PAYLOAD_ONLY = Overhead(0.0, 0.0)


def ideal_time_s(
    virtual_links: Iterable[VirtualLink], nic_bps: Mapping[str, float], overhead: Overhead = PAYLOAD_ONLY
) -> dict[int, float]:
    """Return the ideal time of each phase in seconds, in ascending order of phases.

    The ideal time is the largest value of bits through a NIC / rate of the NIC, over all NICs and both directions.
    ``nic_bps``: rate of the NIC of each address, in bit/s per direction. Raises ``KeyError`` for an address without a
    rate."""
    return {phase: nic.seconds for phase, nic in _busiest(virtual_links, nic_bps, overhead).items()}


class _Busiest(NamedTuple):
    """NIC that needs the most time for its traffic of a phase in one direction."""

    seconds: float
    bits: float
    bps: float


def _busiest(
    virtual_links: Iterable[VirtualLink], nic_bps: Mapping[str, float], overhead: Overhead
) -> dict[int, _Busiest]:
    """Return the busiest NIC of each phase, in ascending order of phases."""
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
    """Return the seconds of communication per iteration on an idle fabric: the sum of the ideal times of all phases."""
    return sum(ideal_time_s(virtual_links, nic_bps, overhead).values())


def demands(
    virtual_links: Sequence[VirtualLink], nic_bps: Mapping[str, float]
) -> dict[tuple[str, str], tuple[tuple[int, float], ...]]:
    """Return the demand of each pair of addresses of one job as (phase, bit/s), in ascending order of phases.

    A demand is the pair's fraction of the traffic of the busiest NIC, times the rate of that NIC. A flow that carries
    all of that traffic therefore demands exactly the NIC's rate. Multiplying all bytes by one number does not change
    the demands.

    Raises ``KeyError`` for an address without a NIC rate."""
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
