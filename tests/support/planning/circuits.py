"""A circuit fabric for tests of the planner and of its analyses."""

from __future__ import annotations

from collections.abc import Iterable

from controller.fabric.topology import Dpid, Fabric, Host, Link, LinkId, Port, PortNo, PortRef, Switch
from tests.support.planning.fabrics import RATE


def rings(servers: int, steps: Iterable[int], without: Iterable[tuple[int, int]] = ()) -> Fabric:
    """Return a fabric in which each server sends over circuits to other servers.

    Each server has its host at port 1. Interface k of server n, port 1 + k, sends to server n + ``steps[k - 1]``,
    modulo the number of servers. ``without``: (server, port) of interfaces that do not send."""
    names = {Dpid(n): f"server{n}" for n in range(1, servers + 1)}
    links = {}
    ports = range(1, 2 + len(steps := list(steps)))
    for number, step in enumerate(steps, start=2):
        for n in names:
            src, dst = PortRef(n, PortNo(number)), PortRef(Dpid((n + step - 1) % servers + 1), PortNo(number))
            if (n, number) not in {*without}:
                links[LinkId(*src)] = Link(src, dst, RATE, one_way=True)
    switches = {
        dpid: Switch(
            dpid,
            name,
            {PortNo(n): Port(PortNo(n), f"{name}-eth{n}", "02:00:00:00:00:01", up=True, speed_bps=RATE) for n in ports},
        )
        for dpid, name in names.items()
    }
    hosts = {f"10.0.{n}.1": Host(f"10.0.{n}.1", None, PortRef(n, PortNo(1)), RATE) for n in names}
    return Fabric(1, switches, links, hosts)
