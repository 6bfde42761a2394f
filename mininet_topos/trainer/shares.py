"""Division of a rank's bytes over the connections to a peer.

The controller decides the share of every subflow. Rank 0 receives the shares (``signalbox.join``) and writes them to a
file in the directory that the ranks share. Every rank reads the file before each iteration. This module owns the file,
and the order in which slices are assigned to connections.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mininet_topos.trainer.sockets import replace_file
from signalbox.jobs.subflows import PortClass

SHARES_FILE = "routes.json"
PARTS = 1000
"""Units of a weight: shares are counted in thousandths."""

Subflow = tuple[float, int, int]
"""Share of a subflow, and value and mask of its source ports."""

Shares = Mapping[str, Sequence[Subflow]]
"""Subflows of every split flow, by ``source>destination``."""


class RoundRobin:
    """Assignment of slices to ``count`` connections in proportion to weights, evenly spread.

    It is smooth weighted round robin. Both ends of a bundle use the same weights, so the receiver knows on which
    connection the next slice arrives. Until weights are set, all slices use the first connection."""

    def __init__(self, count: int) -> None:
        self.weights: tuple[int, ...] = (PARTS, *[0] * (count - 1))
        self._credit = [0] * count

    def set(self, weights: Sequence[int]) -> None:
        """Set the weights. Equal weights change nothing: the order continues where it was."""
        if tuple(weights) != self.weights:
            self.weights = tuple(weights)
            self._credit = [0] * len(weights)

    def next(self) -> int:
        """Return the index of the next slice's connection."""
        self._credit = [credit + weight for credit, weight in zip(self._credit, self.weights, strict=True)]
        chosen = self._credit.index(max(self._credit))
        self._credit[chosen] -= sum(self.weights)
        return chosen


def weights_of(subflows: Iterable[Subflow], source_ports: Sequence[int]) -> tuple[int, ...]:
    """Return the weight of each connection in thousandths, by its source port.

    The weight is the share of the subflow whose class contains the port, at least 1; 0 for connections of no subflow.
    The first connection gets the whole weight when no class contains a port."""
    weights = [0] * len(source_ports)
    for share, value, mask in subflows:
        holder = next((i for i, port in enumerate(source_ports) if PortClass(value, mask).holds(port)), None)
        if holder is not None:
            weights[holder] = max(1, round(share * PARTS))
    return tuple(weights) if any(weights) else (PARTS, *weights[1:])


class SharesFile:
    """File of shares in ``directory``, with the shares that were read last."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / SHARES_FILE
        self._version: tuple[int, int] | None = None
        self._shares: Shares = {}

    def write(self, shares: Shares) -> None:
        replace_file(self._path, json.dumps(shares))

    def read_again(self) -> bool:
        """Read the file again, and return whether it was replaced since the last time."""
        try:
            stat = self._path.stat()
            version = stat.st_mtime_ns, stat.st_ino
            if version == self._version:
                return False
            read = json.loads(self._path.read_text())
        except FileNotFoundError:
            return False
        self._shares = {flow: [(share, value, mask) for share, value, mask in of] for flow, of in read.items()}
        self._version = version
        return True

    def subflows(self, src: str, dst: str) -> Sequence[Subflow]:
        """Return the subflows of a flow; none when it is not split."""
        return self._shares.get(f"{src}>{dst}", ())
