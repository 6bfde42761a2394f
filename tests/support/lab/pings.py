"""Addresses of a lab's hosts, and echo requests between them."""

from __future__ import annotations

import subprocess

from mininet_topos.lab.lab import Lab


def address(lab: Lab, host: str) -> str:
    return next(h.ip for h in lab.hosts if h.name == host)


def assert_pings(lab: Lab, source: str, target: str, count: int | None = None) -> None:
    """Assert that the target answers at least one echo request.

    ``count``: requests to send. Without it the first answer is enough, within some seconds: on a busy machine a single
    echo may be late."""
    # With -w, ping sends until it has -c answers.
    how_many = ["-c", "1", "-w", "20"] if count is None else ["-c", str(count), "-W", "3"]
    argv = ["ping", *how_many, "-i", "0.2", address(lab, target)]
    out = lab.popen(source, argv, stdout=subprocess.PIPE, text=True).communicate()[0]
    assert " bytes from " in out, f"{source} does not reach {target}:\n{out}"
