"""How a rank divides its bytes over the connections to a peer: told by the controller, obeyed between iterations.

Rank 0 listens to the job's route stream and writes what it hears into the ranks' shared directory (``route_listener``);
every rank looks there before each iteration. In: the file. Out: a weight per connection, and the order in which slices
are dealt to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from controller.jobs.source_ports import PortClass

SHARES_FILE = "routes.json"
PARTS = 1000
"""Shares are dealt in thousandths."""


class Deal:
    """Deals slices to ``count`` connections in proportion to weights, evenly spread (smooth weighted round robin).

    Both ends of a bundle deal alike, so that the receiver knows on which connection the next slice comes. Before
    anything is told everything goes to the first.
    """

    def __init__(self, count: int) -> None:
        self.weights: tuple[int, ...] = (PARTS, *[0] * (count - 1))
        self._credit = [0] * count

    def set(self, weights: Sequence[int]) -> None:
        """Weights as before change nothing: the deal goes on where it was."""
        if tuple(weights) != self.weights:
            self.weights = tuple(weights)
            self._credit = [0] * len(weights)

    def next(self) -> int:
        """The connection of the next slice."""
        self._credit = [credit + weight for credit, weight in zip(self._credit, self.weights, strict=True)]
        chosen = self._credit.index(max(self._credit))
        self._credit[chosen] -= sum(self.weights)
        return chosen


Shares = Mapping[str, Sequence[tuple[float, int, int]]]
"""Per flow, ``source>destination``: of each subflow the share, and value and mask of its source ports."""


def weights_of(pieces: Iterable[tuple[float, int, int]], source_ports: Sequence[int]) -> tuple[int, ...]:
    """The weight of each connection, by its source port: the share of the subflow in whose class that is, in
    thousandths, at least one; 0 for connections of no subflow. All to the first when no class has a connection."""
    weights = [0] * len(source_ports)
    for share, value, mask in pieces:
        holder = next((i for i, port in enumerate(source_ports) if PortClass(value, mask).holds(port)), None)
        if holder is not None:
            weights[holder] = max(1, round(share * PARTS))
    return tuple(weights) if any(weights) else (PARTS, *weights[1:])


class Division:
    """What is in the shared directory; read again when it was replaced."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / SHARES_FILE
        self._read: tuple[int, int] | None = None
        self._shares: Shares = {}

    def pieces(self, src: str, dst: str) -> Sequence[tuple[float, int, int]]:
        """The subflows of a flow as told last; none when it is whole."""
        return self._shares.get(f"{src}>{dst}", ())

    def look(self) -> bool:
        """Whether there is something new."""
        try:
            stat = self._file.stat()
            seen = stat.st_mtime_ns, stat.st_ino
            if seen == self._read:
                return False
            read = json.loads(self._file.read_text())
        except FileNotFoundError:
            return False
        self._shares = {flow: [(share, value, mask) for share, value, mask in of] for flow, of in read.items()}
        self._read = seen
        return True
