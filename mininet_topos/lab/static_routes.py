"""Rules for a lab without a controller."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from controller.circuits.wiring.circuits import Wiring, hops_between
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import run
from offline.scenarios.topologies import Host


def install_static_routes(lab: Lab, spine: str = "spine1") -> None:
    """Route unicast IP and ARP by destination over ``spine``.

    Hosts know each other's MAC, so nothing is broadcast."""
    uplinks = {cable.a: cable for cable in lab.links if cable.b == spine and cable.number == 1}
    for switch in lab.switches:
        rules = []
        for host in lab.hosts:
            if switch.name == host.leaf:
                port = host.port
            elif switch.name == spine:
                port = uplinks[host.leaf].b_port
            elif switch.name in uplinks:
                port = uplinks[switch.name].a_port
            else:
                continue
            rules += _to(host, f"output:{port}")
        _install(lab, switch.name, rules)
    _introduce(lab)


def install_circuits(lab: Lab, wiring: Wiring) -> None:
    """Install a wiring on a direct-connect fabric: circuits, and shortest paths by destination on the servers.

    Each server uses one of the shortest paths. Existing rules stay."""
    hops = hops_between(wiring)
    servers = range(1, wiring.servers + 1)
    for k, peers in enumerate(wiring.peers, 1):
        circuits = [f"in_port={i},actions=output:{peer + 1}" for i, peer in enumerate(peers, 1) if peer is not None]
        _install(lab, f"optical{k}", circuits)
    for i, host_here in zip(servers, lab.hosts, strict=True):
        rules = _to(host_here, f"output:{host_here.port}")
        for j, host in zip(servers, lab.hosts, strict=True):
            nearer = [
                k
                for k, peers in enumerate(wiring.peers, 1)
                if (peer := peers[i - 1]) is not None and 0 <= hops[peer, j - 1] < hops[i - 1, j - 1]
            ]
            if nearer:
                # An output to the ingress port is dropped unless the port field is cleared first.
                rules += _to(host, f"load:0->NXM_OF_IN_PORT[],output:{1 + nearer[(i + j) % len(nearer)]}")
        _install(lab, f"server{i}", rules)
    _introduce(lab)


def _to(host: Host, actions: str) -> list[str]:
    return [f"ip,nw_dst={host.ip},actions={actions}", f"arp,arp_tpa={host.ip},actions={actions}"]


def _install(lab: Lab, switch: str, rules: Sequence[str]) -> None:
    run("ovs-ofctl", "-O", "OpenFlow13", "add-flows", lab.bridge(switch), "-", feed="\n".join(rules))


def _introduce(lab: Lab) -> None:
    for host in lab.hosts:
        interface = lab.topo.interface(host.name, 0)
        neighbours = [f"neigh replace {o.ip} lladdr {o.mac} dev {interface}" for o in lab.hosts if o is not host]
        program = lab.popen(host.name, ["ip", "-batch", "-"], stdin=subprocess.PIPE, text=True)
        program.communicate("\n".join(neighbours))
        assert program.returncode == 0
