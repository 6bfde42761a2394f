"""A network of several dimensions in namespaces: one per NPU, and one for all switches, which are the kernel's bridges.

In: a ``Shape``. Out: namespaces with an interface per link of an NPU, shaped at both ends by ``tc``. Root is needed,
and no Open vSwitch. All is in the namespaces, so that nothing stays when these are deleted.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from mininet_topos import ending
from mininet_topos.dimensions.cabling import Segment, segments
from mininet_topos.fabric_topo import OFFLOADS, shaping
from mininet_topos.lab.record import LabError, in_one_process, run
from offline.design.shape import Shape

LEAST_MBPS = 0.1
"""Of a dimension that gets nothing."""


class Dimensions:
    """A network that is there. ``cabling``: its segments."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.cabling = segments(shape)
        prefix = f"sbd{os.getpid() % 100_000}"
        self._npus = [f"{prefix}-{npu}" for npu in range(shape.npus)]
        self._switches = f"{prefix}-switches"

    def namespace(self, npu: int) -> str:
        return self._npus[npu]

    def set_rates(self, mbps: Sequence[float]) -> None:
        """``mbps``: of an NPU, each way, by dimension over all its links there. Raises ``LabError``."""
        links = [dimension.links for dimension in self.shape.dimensions]
        disciplines = [shaping(max(rate / n, LEAST_MBPS)) for rate, n in zip(mbps, links, strict=True)]
        steps = defaultdict[str, list[str]](list)
        for segment in self.cabling:
            for namespace, interface in self._interfaces(segment):
                steps[namespace].append(f"qdisc replace dev {interface} root {disciplines[segment.dimension]}")
        for namespace, lines in steps.items():
            run("tc", "-n", namespace, "-batch", "-", feed="\n".join(lines))

    def make(self) -> None:
        """Raises ``LabError``."""
        for namespace in (*self._npus, self._switches):
            run("ip", "netns", "add", namespace)
        in_one_process("ip", (line for segment in self.cabling for line in self._cables(segment)))
        inside, plain = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for segment in self.cabling:
            if segment.switched:
                inside[self._switches].append(f"link set {_bridge(segment)} up")
            for namespace, interface in self._interfaces(segment):
                inside[namespace].append(f"link set {interface} addrgenmode none up")
                plain[namespace].append(f"ethtool -K {interface} " + " ".join(f"{each} off" for each in OFFLOADS))
                if namespace == self._switches:
                    inside[namespace].append(f"link set {interface} master {_bridge(segment)}")
            for end in segment.ends:
                inside[self._npus[end.npu]].append(f"addr add {end.address}/24 dev {end.interface}")
        for namespace, lines in inside.items():
            run("ip", "-n", namespace, "-batch", "-", feed="\n".join(lines))
            run("ip", "netns", "exec", namespace, "sh", "-ec", "\n".join(plain[namespace]))

    def remove(self) -> None:
        for namespace in (*self._npus, self._switches):
            with suppress(LabError):
                run("ip", "netns", "delete", namespace)

    def _cables(self, segment: Segment) -> Iterator[str]:
        ends = self._interfaces(segment)
        if segment.switched:
            yield f"link add dev {_bridge(segment)} netns {self._switches} type bridge"
        for (here, interface), (there, peer) in zip(ends[::2], ends[1::2], strict=True):
            yield f"link add dev {interface} netns {here} type veth peer name {peer} netns {there}"

    def _interfaces(self, segment: Segment) -> list[tuple[str, str]]:
        """(namespace, interface) of both ends of each cable."""
        ends = [(self._npus[end.npu], end.interface) for end in segment.ends]
        if not segment.switched:
            return ends
        ports = [(self._switches, f"{_bridge(segment)}p{port}") for port in range(len(ends))]
        return [end for pair in zip(ends, ports, strict=True) for end in pair]


def _bridge(segment: Segment) -> str:
    return f"sw{segment.number}"


@contextmanager
def dimensions(shape: Shape) -> Iterator[Dimensions]:
    """Raises ``LabError``."""
    if os.geteuid():
        raise LabError("an emulated network needs root, to make network namespaces")
    network = Dimensions(shape)
    with ending.unwinding():
        try:
            network.make()
            yield network
        finally:
            with ending.held():
                network.remove()
