"""What each collective sends, measured inside a rank: the bytes that it received from every other one.

In: a ``Library`` and a file with cases, ``[{"collective", "elements"}, …]``. Out: a file with one line per case:
``{"collective", "elements", "ok", "received": [bytes from rank 0, from rank 1, …]}``. Ranks meet by files, so the
network carries the collective alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mininet_topos.joining.connections import read_connections, received_from
from mininet_topos.joining.rank import Counts, Library, data, expected, is_right, meet

WARM_UP = 2
"""Iterations before the measurement: connections are made in the first, DDP arranges its buckets anew after it."""
MEASURED = 2
QUIET_S = 0.05


def measure(library: Library, peers: Sequence[str], cases: Path, out: Path, counts: Counts) -> None:
    """``out``: directory that all ranks share, for the results ``wire-RANK.jsonl`` and the meetings. ``counts``: which
    connections are the library's."""
    listed: list[dict[str, Any]] = json.loads(cases.read_text())
    rank, size = library.rank, library.size

    def received(name: str) -> list[int]:
        meet(out / "meet", f"{name}-here", rank, size)
        time.sleep(QUIET_S)
        found = received_from(read_connections(), counts)
        meet(out / "meet", f"{name}-read", rank, size)
        return [found[peer, peers[rank]] for peer in peers]

    with (out / f"wire-{rank}.jsonl").open("w") as file:
        for number, case in enumerate(listed):
            collective, elements = case["collective"], case["elements"]
            ok = True
            for index in range(WARM_UP + MEASURED):
                if index == WARM_UP:
                    before = received(f"{number}-before")
                result = library.run(collective, data(rank, index, elements))
                ok = ok and is_right(result, expected(collective, rank, size, index, elements))
            after = received(f"{number}-after")
            counted = [round((b - a) / MEASURED) for a, b in zip(before, after, strict=True)]
            file.write(json.dumps({**case, "ok": ok, "received": counted}) + "\n")
            file.flush()
