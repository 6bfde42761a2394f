"""What every lab test needs: the right to make a lab, a prefix of its own, and rules without a controller.

Lab tests fail without root or Open vSwitch; they are never skipped, so that a green run means that they ran.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, run
from mininet_topos.leaf_spine import LeafSpine

PREFIX_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # no lower case: names continue with it


@pytest.fixture(scope="session", autouse=True)
def _can_make_labs() -> None:
    if os.geteuid():
        pytest.fail("lab tests need root: they make network namespaces and bridges", pytrace=False)
    try:
        run("ovs-vsctl", "--timeout=5", "show")
        run("mnexec", "-v")
    except LabError as error:
        pytest.fail(f"lab tests need Open vSwitch and Mininet: {error}", pytrace=False)


@pytest.fixture(scope="session")
def lab_prefix() -> str:
    """Three characters from the process id: two test runs at once do not take each other's names."""
    number, digits = os.getpid(), ""
    for _ in range(2):
        number, digit = divmod(number, len(PREFIX_DIGITS))
        digits += PREFIX_DIGITS[digit]
    return f"t{digits}"


@pytest.fixture
def lab(lab_prefix: str) -> Iterator[Lab]:
    """Two leaves, two spines, two hosts each at 5 Mbit/s; no controller, static routes over spine1."""
    with Lab(LeafSpine(2, 2, 2, prefix=lab_prefix), controller=None) as lab:
        install_static_routes(lab)
        yield lab


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
        _feed(["ovs-ofctl", "-O", "OpenFlow13", "add-flows", switch.bridge, "-"], rules)
    for host in lab.hosts:
        interface = lab.topo.interface(host.name, 0)
        neighbours = [f"neigh replace {o.ip} lladdr {o.mac} dev {interface}" for o in lab.hosts if o is not host]
        program = lab.popen(host.name, ["ip", "-batch", "-"], stdin=subprocess.PIPE, text=True)
        program.communicate("\n".join(neighbours))
        assert program.returncode == 0


def _feed(argv: list[str], lines: list[str]) -> None:
    subprocess.run(argv, input="\n".join(lines), text=True, check=True)
