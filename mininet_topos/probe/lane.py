"""A lane of their own for probes on every emulated link, so that what they lose is nobody's queue.

A link that training fills drops packets by its nature, and a probe that it dropped would be taken for one that a
failure cost. So the link's token bucket becomes two that share its rate: packets with ``LANE_TOS`` go first, all others
wait in the same short queue as before. Owns the queueing disciplines that do that and what they count; Linux's
``htb`` and ``u32`` are the only ones that every kernel we met has.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from controller.offline.topologies import Cable
from mininet_topos.fabric_topo import BURST_FRAMES, FRAME_BYTES, queue_bytes
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, run

LANE_TOS = 0x10
LANE_SHARE = 0.2
"""Of a link's rate that probes may always have: one every millisecond takes 480 kbit/s."""


class Drops(NamedTuple):
    """Packets that did not get on.

    ``data``, ``probes``: found a link's queue full; Open vSwitch then throws away the rest of what it was about to send
    there, which nobody counts. ``late``: it came too late to fetch them: without its kernel module one process forwards
    for all switches, and when that waits too long for a processor its ports' receive buffers overflow. ``no_way``: the
    switches' rules had nothing for them; only these are the controller's doing.
    """

    data: int
    probes: int
    late: int
    no_way: int


AllDrops = Mapping[tuple[str, str], int]
"""By interface, and field of ``Drops``."""


def open_lanes(lab: Lab, queue_s: float | None = None) -> None:
    """Give probes their lane on every link that has none. A switch that was started again has new queues without.
    ``queue_s``: length of the queues in seconds of the link's rate, None for that of the lab's."""
    rates = {interface: mbps for cable in lab.links for interface, mbps in _ends(lab, cable)}
    for namespace in _namespaces(lab):
        plain = [q["dev"] for q in _qdiscs(namespace) if q["kind"] == "tbf" and q["dev"] in rates]
        lines = [line for device in plain for line in _lane(device, rates[device], queue_s)]
        _batch(namespace, lines)


def all_drops(lab: Lab) -> AllDrops:
    """What every queue and port of the lab has dropped since it was made."""
    ours = {interface for cable in lab.links for interface, _ in _ends(lab, cable)}
    lanes = {"tbf": "data", "10:": "probes", "20:": "data"}
    queues = {
        (q["dev"], lanes[q["kind"] if q["kind"] == "tbf" else q["handle"]]): q["drops"]
        for namespace in _namespaces(lab)
        for q in _qdiscs(namespace)
        if q["dev"] in ours and q["kind"] in ("tbf", "bfifo")
    }
    sockets = run("ss", "-0", "--numeric", "--memory", "--no-header", "--oneline")
    late = {
        (interface, "late"): int(dropped)  # ss(8): d of a packet socket's memory
        for interface, dropped in re.findall(r"^p_raw .*?[*]:(\S+) .*,d(\d+)\)", sockets, re.MULTILINE)
        if interface in ours
    }
    dropped = re.search(r"^drop_action_of_pipeline .*total: (\d+)$", run("ovs-appctl", "coverage/show"), re.MULTILINE)
    return {**queues, **late, ("", "no_way"): int(dropped[1]) if dropped else 0}


def drops_since(before: AllDrops, after: AllDrops) -> Drops:
    """What was made anew counts from 0."""
    lost = dict.fromkeys(Drops._fields, 0)
    for (interface, where), count in after.items():
        earlier = before.get((interface, where), 0)
        lost[where] += count - earlier if count >= earlier else count
    return Drops(**lost)


def _lane(device: str, mbps: float, queue_s: float | None) -> Iterator[str]:
    limit = queue_bytes(mbps) if queue_s is None else round(queue_s * mbps * 1e6 / 8)
    kbit, burst = round(mbps * 1000), f"burst {BURST_FRAMES * FRAME_BYTES} cburst {BURST_FRAMES * FRAME_BYTES}"
    probes = round(kbit * LANE_SHARE)
    yield f"qdisc replace dev {device} root handle 2: htb default 20"
    yield f"class add dev {device} parent 2: classid 2:1 htb rate {kbit}kbit {burst}"
    yield f"class add dev {device} parent 2:1 classid 2:10 htb rate {probes}kbit ceil {kbit}kbit {burst} prio 0"
    yield f"class add dev {device} parent 2:1 classid 2:20 htb rate {kbit - probes}kbit ceil {kbit}kbit {burst} prio 1"
    for lane in ("10", "20"):
        yield f"qdisc add dev {device} parent 2:{lane} handle {lane}: bfifo limit {limit}"
    yield f"filter add dev {device} parent 2: protocol ip prio 1 u32 match ip tos {LANE_TOS:#x} 0xff flowid 2:10"


def _ends(lab: Lab, cable: Cable) -> Iterator[tuple[str, float]]:
    for end, port in ((cable.a, cable.a_port), (cable.b, cable.b_port)):
        yield lab.topo.interface(end, port), cable.bps / 1e6


def _namespaces(lab: Lab) -> list[list[str]]:
    """The arguments with which tc is told where to look: switches are here, hosts elsewhere."""
    return [[], *(["-n", lab.namespace(host)] for host in lab.hosts)]


def _qdiscs(namespace: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("tc", *namespace, "-s", "-j", "qdisc", "show"))
    return found


def _batch(namespace: list[str], lines: list[str]) -> None:
    done = subprocess.run(
        ["tc", *namespace, "-batch", "-"], input="\n".join(lines), text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise LabError(f"cannot give probes a lane: {done.stderr.strip()}")
