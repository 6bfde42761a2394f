"""Addresses of a lab's hosts, and echo requests between them."""

from __future__ import annotations

import subprocess

from mininet_topos.lab.lab import Lab


def address(lab: Lab, host: str) -> str:
    return next(h.ip for h in lab.hosts if h.name == host)


def assert_pings(lab: Lab, source: str, target: str, count: int = 3) -> None:
    """At least one echo is answered; on a busy machine a single one may be late."""
    argv = ["ping", "-c", str(count), "-i", "0.2", "-W", "3", address(lab, target)]
    out = lab.popen(source, argv, stdout=subprocess.PIPE, text=True).communicate()[0]
    assert " bytes from " in out, f"{source} does not reach {target}:\n{out}"
