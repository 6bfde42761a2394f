"""Section ``circuits`` of a controller's configuration: the optical switches of a fabric and their fibres.

The input is a ``Topology`` from ``topologies.optical``, the result is TOML.
"""

from __future__ import annotations

from collections import defaultdict

from offline.scenarios.topologies import Cable, Topology

DARK_S, DRAIN_S = 0.01, 0.1
"""Defaults of ``dark_s`` and ``drain_s``, in seconds."""


def circuits_config(topology: Topology, dark_s: float = DARK_S, drain_s: float = DRAIN_S) -> str:
    """Return the section as TOML. Switches without hosts are the optical ones.

    - ``dark_s``: seconds without light while circuits change.
    - ``drain_s``: seconds to drain the longest queue of an interface."""
    dpids = {switch.name: switch.dpid for switch in topology.switches}
    leaves = {host.leaf for host in topology.hosts}
    at: defaultdict[str, dict[int, Cable]] = defaultdict(dict)
    for cable in topology.cables:
        at[cable.b][cable.b_port] = cable
    lines = ["[circuits]", f"dark_s = {dark_s}", f"drain_s = {drain_s}"]
    for switch in topology.switches:
        if switch.name in leaves:
            continue
        lines += ["", "[[circuits.switch]]", f"dpid = {switch.dpid:#x}", "fibres = ["]
        for port in range(1, max(at[switch.name], default=0) + 1):
            end = at[switch.name].get(port)
            fibre = f"{dpids[end.a]:#x}:{end.a_port}" if end else ""
            lines.append(f'    "{fibre}",')
        lines.append("]")
    return "\n".join(lines) + "\n"
