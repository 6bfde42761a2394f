"""Rules for a lab without a controller."""

from __future__ import annotations

import subprocess

from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import run


def install_static_routes(lab: Lab, spine: str = "spine1") -> None:
    """Unicast IP and ARP by destination over ``spine``; hosts know each other's MAC, so nothing is broadcast."""
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
            rules += [f"ip,nw_dst={host.ip},actions=output:{port}", f"arp,arp_tpa={host.ip},actions=output:{port}"]
        run("ovs-ofctl", "-O", "OpenFlow13", "add-flows", lab.bridge(switch.name), "-", feed="\n".join(rules))
    for host in lab.hosts:
        interface = lab.topo.interface(host.name, 0)
        neighbours = [f"neigh replace {o.ip} lladdr {o.mac} dev {interface}" for o in lab.hosts if o is not host]
        program = lab.popen(host.name, ["ip", "-batch", "-"], stdin=subprocess.PIPE, text=True)
        program.communicate("\n".join(neighbours))
        assert program.returncode == 0
