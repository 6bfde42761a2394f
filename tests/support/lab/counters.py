"""Counters and descriptions from Open vSwitch, and metrics of a lab's controller.

Counters of rules lag behind the packets by up to a second."""

import re
import urllib.request
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families

from mininet_topos.controller_process import ControllerProcess
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import run

T = TypeVar("T")
_RULE = re.compile(r"n_bytes=(\d+),.*nw_src=([\d.]+),nw_dst=([\d.]+),?(tp_\S+)? actions")


def ofctl(lab: Lab, switch: str, command: str, *arguments: str) -> str:
    return run("ovs-ofctl", "-O", "OpenFlow13", command, lab.bridge(switch), *arguments)


def described_ports(lab: Lab, switch: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the dpid, and (number, MAC address) of each port, as the switch describes itself."""
    out = ofctl(lab, switch, "show")
    return re.findall(r"dpid:(\S+)", out), sorted(re.findall(r"^ (\d+)\(.*addr:(\S+)", out, re.MULTILINE))


def quiet(read: Callable[[], T]) -> T:
    """Return the counters once Open vSwitch has updated them twice and they stayed the same."""
    before, now = None, read()
    while now != before:
        for _ in range(2):  # the first update may have begun before
            run("ovs-appctl", "--timeout=60", "revalidator/wait")
        before, now = now, read()
    return now


def sent(lab: Lab, *switches: str, unit: str = "bytes") -> Counter[tuple[str, str]]:
    """Return what the switches, all unless given, have sent to each neighbour; the key has the names of both.

    ``unit``: "bytes" or "pkts"."""
    to = {(c.a, c.a_port): c.b for c in lab.links} | {(c.b, c.b_port): c.a for c in lab.links}
    return Counter(
        {
            (switch, to[switch, int(port)]): int(count)
            for switch in switches or [each.name for each in lab.switches]
            for port, count in re.findall(
                rf"port +(\d+): rx.*?tx .*?{unit}=(\d+)", ofctl(lab, switch, "dump-ports"), re.DOTALL
            )
        }
    )


def sent_up(lab: Lab, leaf: str) -> list[int]:
    return [count for (_, to), count in sent(lab, leaf).items() if to.startswith("spine")]


def rule_bytes(lab: Lab, switch: str) -> Counter[tuple[str, str, str]]:
    """Return the bytes that the pinned rules of a switch have counted, by source, destination and match of ports.

    The match of ports is as Open vSwitch writes it, and empty for a rule of whole flows."""
    found = _RULE.findall(ofctl(lab, switch, "dump-flows", "table=1"))
    return Counter({(src, dst, ports): int(count) for count, src, dst, ports in found})


def metric(controller: ControllerProcess, name: str, **labels: str) -> list[float]:
    address = re.findall(r"metrics=(\S+)", controller.log.read_text())[-1]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = (sample for family in families for sample in family.samples)
    return [sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()]
