"""Plain network namespaces joined by one bridge of the kernel: fast, without rates and without Open vSwitch.

For measuring what a library sends, which does not depend on the network. Root is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mininet_topos.lab.record import LabError, run

SUBNET = "10.77.0.0/16"
INTERFACE = "eth0"


@contextmanager
def namespaces(count: int) -> Iterator[dict[str, str]]:
    """Address by name, in the order of ranks. Raises ``LabError``."""
    prefix = f"sbj{os.getpid() % 100_000}"
    names = {f"{prefix}-{number}": f"10.77.0.{number + 1}" for number in range(count)}
    ends = [f"{prefix}v{number}" for number in range(count)]
    steps = [f"link add {prefix} type bridge", f"link set {prefix} up"]
    try:
        for end, name in zip(ends, names, strict=True):
            run("ip", "netns", "add", name)
            steps.append(f"link add {end} type veth peer name {INTERFACE} netns {name}")
            steps.append(f"link set {end} master {prefix} up")
        run("ip", "-batch", "-", feed="\n".join(steps))
        for name, address in names.items():
            inside = [f"addr add {address}/16 dev {INTERFACE}", f"link set {INTERFACE} up", "link set lo up"]
            run("ip", "-n", name, "-batch", "-", feed="\n".join(inside))
        yield names
    finally:
        for end in (*ends, prefix):  # before the namespaces, whose interfaces the kernel deletes some time later
            with suppress(LabError):
                run("ip", "link", "delete", end)
        for name in names:
            with suppress(LabError):
                run("ip", "netns", "delete", name)
