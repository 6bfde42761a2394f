"""Fabric of the demo for one benchmark, and a folder for the files of its controller."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mininet_topos.demo.phases import HOSTS_PER_LEAF, LEAVES, RATE_BPS, SPINES
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.queues import large_socket_buffers


@contextmanager
def demo_fabric(prefix: str, out: Path) -> Iterator[tuple[LeafSpine, Path]]:
    """Yield the topology and a temporary folder; the controller's log in the folder is copied to ``out`` at the end.

    ``prefix``: prefix of the names of interfaces and namespaces, so that labs can run side by side."""
    out.mkdir(parents=True, exist_ok=True)
    mbps = RATE_BPS / 1e6
    with large_socket_buffers(), tempfile.TemporaryDirectory(prefix=f"signalbox-{prefix}-") as name:
        try:
            yield LeafSpine(LEAVES, SPINES, HOSTS_PER_LEAF, mbps, mbps, prefix=prefix), Path(name)
        finally:
            shutil.copy(Path(name) / "controller.log", out)
