"""Queues and buffers of an emulated fabric: classes of jobs, and probes whose loss shows a failure of the network.

A link that training fills drops packets, and so does Open vSwitch when it waits long for a processor. Probes should
count neither loss. ``prioritise_probes`` turns each link's token bucket into two that share its rate: packets with
``PROBE_TOS`` go first, all others wait in the same short queue as before. ``sort_by_class`` does so for the classes of
jobs, by DSCP. ``large_socket_buffers`` makes Open vSwitch delay packets where it would lose them. ``all_drops`` counts
the packets that are dropped nevertheless. The settings use ``htb`` and ``u32``, which all tested kernels have.
"""

import fcntl
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from mininet_topos.fabric_topo import BURST_FRAMES, FRAME_BYTES, QUEUE_S, queue_bytes, shaping
from mininet_topos.lab import record
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, run
from offline.scenarios.topologies import Cable

PROBE_TOS = 0x10
PROBE_SHARE = 0.2
"""Share of a link's rate that is always available to probes: one per millisecond takes 480 kbit/s."""
FLOOR = 0.1
"""Share of a link's rate that each class but the first always has."""
BUFFER_BYTES = 16 << 20
BUFFER_SETTINGS = tuple(Path(f"/proc/sys/net/core/{name}_default") for name in ("rmem", "wmem"))
"""Default buffer sizes of sockets that do not set their own (socket(7)). TCP has other settings (tcp(7))."""
USERS = "socket-buffers"
"""Name of a file of the lab records. Every process that needs large buffers has it locked; it has the former sizes."""


class Drops(NamedTuple):
    """Numbers of dropped packets, by cause.

    ``data``, ``probes``: dropped by the full queue of a link; Open vSwitch then also drops the rest of the batch,
    uncounted. ``late``: dropped by the full receive buffer of a port. Without its kernel module Open vSwitch forwards
    in one process for all switches, which may wait too long for a processor. ``no_way``: dropped by the switches'
    rules, the only drops that the controller causes."""

    data: int
    probes: int
    late: int
    no_way: int


AllDrops = Mapping[tuple[str, str], int]
"""Number of dropped packets by interface and by name of a field of ``Drops``."""


def prioritise_probes(lab: Lab, queue_s: float = QUEUE_S) -> None:
    """Set up two queues on every link that has a single one, such as the links of a restarted switch.

    ``queue_s``: length of the queues in seconds of the link's rate. With two queues, a slow link that is always full
    has a rate about 5 % lower than with one."""
    queues = (_Queue("10", PROBE_SHARE, PROBE_TOS, 0xFF), _Queue("20", 1 - PROBE_SHARE))
    _shape_anew(lab, lambda device, mbps: _in_order(device, mbps, queue_s, queues))


def sort_by_class(lab: Lab, dscp: Sequence[int], floor: float = FLOOR, queue_s: float = QUEUE_S) -> None:
    """Set up a queue for each class on every link that has a single one.

    ``dscp``: DSCP of each class, the first class first. ``floor``: share of a link's rate that every later class always
    has. A class borrows what the classes before it leave. Packets with any other DSCP are in the first class, so that a
    job without a class is not slower than without classes. ``queue_s``: see ``prioritise_probes``."""
    later = [_Queue(f"{30 + number}", floor, value << 2, 0xFC) for number, value in enumerate(dscp[1:])]
    queues = (_Queue("20", 1 - floor * len(later)), *later)
    _shape_anew(lab, lambda device, mbps: _in_order(device, mbps, queue_s, queues))


def lengthen_queues(lab: Lab, queue_s: float) -> None:
    """Set the length of every link's queue, except on links with several queues."""
    _shape_anew(lab, lambda device, mbps: [f"qdisc replace dev {device} root {shaping(mbps, queue_s)}"])


def _shape_anew(lab: Lab, lines: Callable[[str, float], Iterable[str]]) -> None:
    """Run tc for each interface with a single queue.

    ``lines``: function that returns the commands of tc, given the interface and its rate in Mbit/s."""
    rates = {interface: mbps for cable in lab.links for interface, mbps in _ends(lab, cable)}
    for namespace in _namespaces(lab):
        plain = [q["dev"] for q in _qdiscs(namespace) if q["kind"] == "tbf" and q["dev"] in rates]
        run("tc", *namespace, "-batch", "-", feed="\n".join(chain.from_iterable(lines(d, rates[d]) for d in plain)))


def all_drops(lab: Lab) -> AllDrops:
    """Return the drops of every queue and port of the lab since it was created."""
    ours = {interface for cable in lab.links for interface, _ in _ends(lab, cable)}
    queues = Counter[tuple[str, str]]()
    for q in chain.from_iterable(map(_qdiscs, _namespaces(lab))):
        if q["dev"] in ours and q["kind"] in ("tbf", "bfifo"):
            queues[q["dev"], "probes" if q["handle"] == "10:" and q["kind"] == "bfifo" else "data"] += q["drops"]
    sockets = run("ss", "-0", "--numeric", "--memory", "--no-header", "--oneline")
    late = {
        (interface, "late"): int(dropped)  # ss(8): d of a packet socket's memory
        for interface, dropped in re.findall(r"^p_raw .*?[*]:(\S+) .*,d(\d+)\)", sockets, re.MULTILINE)
        if interface in ours
    }
    dropped = re.search(r"^drop_action_of_pipeline .*total: (\d+)$", run("ovs-appctl", "coverage/show"), re.MULTILINE)
    return {**queues, **late, ("", "no_way"): int(dropped[1]) if dropped else 0}


def drops_since(before: AllDrops, after: AllDrops) -> Drops:
    """Return the drops between two readings, summed over all interfaces. A counter that was reset counts from 0."""
    lost = dict.fromkeys(Drops._fields, 0)
    for (interface, where), count in after.items():
        earlier = before.get((interface, where), 0)
        lost[where] += count - earlier if count >= earlier else count
    return Drops(**lost)


class _Queue(NamedTuple):
    """Queue of a link.

    ``number``: name of its class and its queueing discipline. ``share``: share of the link's rate that it always has.
    ``tos``: value of the TOS byte under ``mask`` of its packets; None for all other packets."""

    number: str
    share: float
    tos: int | None = None
    mask: int = 0


def _in_order(device: str, mbps: float, queue_s: float, queues: Sequence[_Queue]) -> Iterator[str]:
    """Yield the commands of tc for queues that take what the queues before them leave of the link's rate."""
    limit = queue_bytes(mbps, queue_s)
    kbit, burst = round(mbps * 1000), f"burst {BURST_FRAMES * FRAME_BYTES} cburst {BURST_FRAMES * FRAME_BYTES}"
    (rest,) = (queue.number for queue in queues if queue.tos is None)
    yield f"qdisc replace dev {device} root handle 2: htb default {rest}"
    yield f"class add dev {device} parent 2: classid 2:1 htb rate {kbit}kbit {burst}"
    for order, (number, share, tos, mask) in enumerate(queues):
        rates = f"rate {round(kbit * share)}kbit ceil {kbit}kbit"
        yield f"class add dev {device} parent 2:1 classid 2:{number} htb {rates} {burst} prio {order}"
        yield f"qdisc add dev {device} parent 2:{number} handle {number}: bfifo limit {limit}"
        if tos is not None:
            match = f"match ip tos {tos:#x} {mask:#x}"
            yield f"filter add dev {device} parent 2: protocol ip prio 1 u32 {match} flowid 2:{number}"


def _ends(lab: Lab, cable: Cable) -> Iterator[tuple[str, float]]:
    for end, port in ((cable.a, cable.a_port), (cable.b, cable.b_port)):
        yield lab.topo.interface(end, port), cable.bps / 1e6


def _namespaces(lab: Lab) -> list[list[str]]:
    """Return tc's arguments for the namespace of the switches and for that of every host."""
    return [[], *(["-n", lab.namespace(host)] for host in lab.hosts)]


def _qdiscs(namespace: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("tc", *namespace, "-s", "-j", "qdisc", "show"))
    return found


@contextmanager
def large_socket_buffers() -> Iterator[None]:
    """Raise the system's default socket buffers, if they are smaller. The last process that needs them restores them.

    Enter this before Open vSwitch sends its first packet, because a socket keeps its initial size.

    Without its kernel module Open vSwitch reads every port through a packet socket and sends for all ports through a
    single one. With the usual defaults a port's socket holds a seventh of a second of its traffic. The sending socket
    holds the packets of a few full queues for all ports together. No counter of a link or switch includes packets that
    these sockets drop; such drops were seen as losses of all pairs at once, 1 to 9 ms long.
    Raises ``LabError`` without root, and in a network namespace other than the first."""
    with ExitStack() as stack:
        with record.registry():
            users = stack.enter_context((record.RECORDS / USERS).open("a+"))
            fcntl.flock(users, fcntl.LOCK_SH)
            stack.callback(_restore_if_last, users)
            _enlarge(users)
        yield


def _enlarge(users: TextIO) -> None:
    sizes: dict[str, int] = {}
    for path in BUFFER_SETTINGS:
        if (size := int(path.read_text())) >= BUFFER_BYTES:
            continue
        try:
            path.write_text(f"{BUFFER_BYTES}\n")
        except OSError as error:
            how = f"run 'sysctl -w net.core.{path.name}={BUFFER_BYTES}' in the first network namespace"
            raise LabError(f"{path}: {error.strerror}; {how}") from None
        sizes[str(path)] = size
        users.truncate(0)
        json.dump(sizes, users)
        users.flush()


def _restore_if_last(users: TextIO) -> None:
    with record.registry(), suppress(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        users.seek(0)
        for path, size in json.loads(users.read() or "{}").items():
            Path(path).write_text(f"{size}\n")
        users.truncate(0)
