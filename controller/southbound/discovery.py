"""Link discovery by LLDP probes: sends probes on a schedule, and finds new and lost links. Sans-IO.

In: switches and ports that are added and removed, frames from switches, the time (``now``, monotonic seconds). Out:
probes to send, ``LinkSeen`` and ``LinkLost``, and the number of refused frames by port and reason.

A probe is accepted once, and only while it is fresh. Every probe has its own number, and the controller keeps the
numbers of each port's latest probes. So a host can neither forge a link (``ethernet_frames``) nor replay an old probe.
Two hosts that relay fresh frames to each other can invent a link (docs/explanation/security.md).
"""

from __future__ import annotations

import heapq
import math
import secrets
from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from controller.fabric.messages import HeardProbe, LinkLost, LinkSeen, ProbesHeard, RefusedPacket
from controller.fabric.topology import Dpid, Port, PortRef
from controller.southbound.ethernet_frames import ProbeFrames

MAX_STEP_S = 0.25
"""Largest number of seconds between two ticks that counts as listening time.

If more time passes, the hub was stalled, and only this number of seconds counts."""
FIRST_GAP_S = 0.25
"""Seconds between the first two probes of a port, if there are few ports.

The gap doubles until a probe arrives or the probe interval is reached. After that, the port has *settled*."""
SLOT_S = 0.5
"""Seconds between two slots, which are the times at which settled ports are probed.

If ``SLOT_S`` is more than a quarter of the probe interval, the slots are closer together."""
BLOCK = 32
"""Number of settled ports of one switch that are probed together."""
MISSES = 3
"""Number of consecutive probes that must fail to arrive before a link is lost."""
GRACE_S = 1.0
"""Seconds in which the last of the ``MISSES`` probes may still arrive; fewer if ``link_timeout_s`` is short."""
FRESH_TIMEOUTS = 3
"""Largest age of an accepted probe, as a multiple of ``link_timeout_s``. No busy hub or switch delays a probe for so
long."""
USUAL_PORTS = 256
"""Number of ports of a switch above which the switch's share of the probe rate does not grow.

The ports of a switch with more ports are probed less often, so that probes of other switches are not delayed."""
QUIET_SHARE = 4
"""Factor by which ports without a link are probed less often than ports with a link.

The factor applies if the rate does not allow one probe per port and interval."""
BURST = 4
"""Factor by which new ports may raise the rate above ``max_probes_per_s``."""
BURST_S = 0.1
"""Time in seconds: the probes that the rate allows in this time may be sent at once."""
MAX_REFUSED = 4096
"""Largest number of pairs (port, reason) whose refused packets are counted between two reports.

The limit bounds the memory that a hostile switch can occupy."""
GOLDEN = 0x9E37_79B9_7F4A_7C15
"""2^64 divided by the golden ratio, the multiplier in ``phase``."""


class Probe(NamedTuple):
    """Probe: a frame, and the port to send it from."""

    at: PortRef
    frame: bytes


@dataclass(slots=True, eq=False)
class _Port:
    """State of a port that is up. Times are listening times (see ``Discovery``), except ``sent_at``."""

    at: PortRef
    head: bytes
    turn: int = 0
    """Number of the port's valid entry in the schedule; entries with other numbers are skipped."""
    gap_s: float | None = FIRST_GAP_S
    """Seconds to the next probe while the gap between probes still grows; None when the port has settled."""
    sent_at: float = -math.inf
    """Monotonic time at which the latest probe was sent."""
    taken_at: float = 0.0
    fresh: dict[int, float] = field(default_factory=dict)
    """Times at which the latest probes were sent, by number of the probe."""
    peer: PortRef | None = None
    """Port where the probes arrive; None before the first arrival."""
    announced: bool = False
    """Whether ``LinkSeen`` was sent for the link to ``peer``."""
    heard_at: float = 0.0
    unanswered: int = 0
    missed_at: float = 0.0
    """Time at which ``unanswered`` reached ``MISSES``."""


class Discovery:
    """Schedule and results of the probes.

    Ages, arrivals and losses of probes are measured in listening time, by a clock that stops while the hub is
    stalled."""

    def __init__(
        self,
        probe_interval_s: float,
        link_timeout_s: float,
        max_probes_per_s: float,
        key: bytes | None = None,
        one_way: Container[PortRef] = (),
    ) -> None:
        """Begin without ports. ``one_way``: ports to optical switches, whose links have only one direction."""
        self._one_way = one_way
        self._interval = probe_interval_s
        self._timeout = link_timeout_s
        self._fresh_s = FRESH_TIMEOUTS * link_timeout_s
        self._rate = max_probes_per_s
        self._frames = ProbeFrames(key)
        self._ports: dict[PortRef, _Port] = {}
        self._of: dict[Dpid, set[PortRef]] = {}
        self._arriving: dict[PortRef, set[_Port]] = {}
        self._suspects: set[_Port] = set()
        self._linked: Counter[Dpid] = Counter()
        self._counts: tuple[float, float] | None = None
        self._due: dict[Dpid, list[tuple[float, int, _Port]]] = {}
        self._turns = 0
        self._sent = secrets.randbits(62)
        """Number of the latest probe. The first number is random, so that no other southbound with the same key uses
        the same numbers."""
        self._allowance = BURST * max_probes_per_s * BURST_S
        self._alive: dict[Dpid, float] = {}
        self._resumed: dict[Dpid, float] = {}
        """Time at which a switch connected, or sent a message after a silence of more than half of
        ``link_timeout_s``."""
        self._listened = 0.0
        self._ticked = math.inf
        self._refused: Counter[RefusedPacket] = Counter()
        self._is_shared = False
        self._elsewhere: list[HeardProbe] = []
        self._spoke: set[Dpid] = set()
        self._alive_elsewhere: dict[Dpid, float] = {}

    # ---- ports

    def switch_connected(self, dpid: Dpid, ports: Iterable[Port]) -> None:
        """Record the ports of a connected switch. Known links are announced again when a probe arrives."""
        up = {PortRef(dpid, port.number) for port in ports if port.up}
        for at in self._of.get(dpid, set()) - up:
            self._port_down(at)
        self._alive[dpid] = self._resumed[dpid] = self._listened
        for at in sorted(up):
            self._port_up(at)
            self._ports[at].announced = False
            self._ports[at].taken_at = self._listened
            for port in self._arriving.get(at, ()):
                port.announced = False
            self._restart(self._ports[at])

    def switch_left(self, dpid: Dpid) -> None:
        """Forget the switch, its ports and their links, without ``LinkLost``."""
        for at in list(self._of.get(dpid, ())):
            self._port_down(at)
        for of_switch in (self._of, self._due, self._linked):
            of_switch.pop(dpid, None)
        self._alive.pop(dpid, None)

    @property
    def links(self) -> list[tuple[PortRef, PortRef]]:
        """Links over which the latest probes of this southbound arrived."""
        return [(at, port.peer) for at, port in self._ports.items() if port.peer]

    def rules_confirmed(self, dpids: Iterable[Dpid]) -> None:
        """Probe the ports of these switches again, because they now have the rules that send probes to the controller.

        Probes that these switches received before were lost. When a probe from one of their ports arrives, the other
        end of the cable is probed too (``received``)."""
        for dpid in dpids:
            for at in sorted(self._of.get(dpid, ())):
                port = self._ports[at]
                arriving = at in self._one_way or any(other.announced for other in self._arriving.get(at, ()))
                if not (port.announced and arriving):
                    self._restart(port)

    def connected_anew(self, ports: Iterable[PortRef]) -> None:
        """Forget where the probes of these ports arrived, without ``LinkLost``, and probe the ports again.

        Optical switches have connected these ports to other ports, or to none."""
        for at in ports:
            if port := self._ports.get(at):
                self._unlink(port)
                self._restart(port)

    def port_changed(self, dpid: Dpid, port: Port, removed: bool) -> None:
        at = PortRef(dpid, port.number)
        if port.up and not removed and dpid in self._alive:
            self._port_up(at)
        else:
            self._port_down(at)

    def _port_up(self, at: PortRef) -> None:
        if at not in self._ports:
            self._ports[at] = _Port(at, self._frames.head(at), taken_at=self._listened)
            self._of.setdefault(at.dpid, set()).add(at)
            self._counts = None
            self._restart(self._ports[at])

    def _port_down(self, at: PortRef) -> None:
        port = self._ports.pop(at, None)
        if port is None:
            return
        self._of[at.dpid].discard(at)
        self._counts = None
        self._unlink(port)
        for other in list(self._arriving.get(at, ())):
            self._unlink(other)
            self._restart(other)

    # ---- time

    def tick(self, now: float) -> list[Probe]:
        """Return the probes that are due, sorted by switch. Must be called a few times per ``MAX_STEP_S``."""
        passed = max(0.0, now - self._ticked)
        self._listened += min(MAX_STEP_S, passed)
        self._ticked = now
        burst = BURST * self._rate
        self._allowance = min(burst * BURST_S, self._allowance + burst * passed)
        linked_s, quiet_s = self._intervals()
        probes = []
        switches = deque(dpid for dpid, due in self._due.items() if due and due[0][0] <= now)
        if switches:
            switches.rotate(-(self._sent % len(switches)))
        while switches and self._allowance >= 1:  # round robin: a switch with many ports delays no other switch
            dpid = switches.popleft()
            if port := self._take_due(dpid, now):
                self._allowance -= 1
                probes.append(self._probe(port, now))
                interval_s = (linked_s if port.peer else quiet_s) / self._weight(dpid)
                self._schedule(port, self._next_at(port, now, interval_s))
                switches.append(dpid)
        probes.sort(key=lambda probe: probe.at.dpid)
        return probes

    def _take_due(self, dpid: Dpid, now: float) -> _Port | None:
        due = self._due[dpid]
        while due and due[0][0] <= now:
            _, turn, port = heapq.heappop(due)
            if port.turn == turn and self._ports.get(port.at) is port:
                return port
        return None

    def _weight(self, dpid: Dpid) -> float:
        """Return the weight of each port of the switch: less than 1 if the switch has more than ``USUAL_PORTS``."""
        return min(1.0, USUAL_PORTS / max(1, len(self._of.get(dpid, ()))))

    def _count_ports(self) -> tuple[float, float]:
        """Return the weighted number of ports with a link, and of ports without a link."""
        if self._counts is None:
            linked = sum(number * self._weight(dpid) for dpid, number in self._linked.items())
            ports = sum(min(USUAL_PORTS, len(of)) for of in self._of.values())
            self._counts = linked, max(0.0, ports - linked)
        return self._counts

    def _intervals(self) -> tuple[float, float]:
        """Return the seconds between two probes of a port, for ports with a link and for ports without a link.

        Both times are the probe interval if the rate allows it."""
        linked, quiet = self._count_ports()
        linked_s = max(self._interval, (linked + quiet / QUIET_SHARE) / self._rate)
        if not quiet:
            return linked_s, linked_s
        return linked_s, max(self._interval, quiet / (self._rate - linked / linked_s))

    def _next_at(self, port: _Port, now: float, interval_s: float) -> float:
        """Return the time of the port's next probe.

        Gaps double until a probe arrives or the interval is reached. After that, the port has one slot in every
        interval."""
        gap_s = port.gap_s
        if gap_s is not None and gap_s < interval_s and not port.announced:
            port.gap_s = 2 * gap_s
            return now + gap_s
        port.gap_s = None
        return _next_slot(port.at, now, interval_s)

    def _restart(self, port: _Port) -> None:
        """Probe the port as if it had just come up, but not sooner than ``FIRST_GAP_S`` after its last probe."""
        port.gap_s = self._first_gap_s(port.at.dpid)
        self._schedule(port, port.sent_at + FIRST_GAP_S)

    def _first_gap_s(self, dpid: Dpid) -> float:
        """Return the gap between the first two probes of a port.

        If thousands of ports are new, a long gap lets each port be probed once before any port is probed again. More
        probes would delay a busy hub."""
        return max(FIRST_GAP_S, self._count_ports()[1] / (BURST * self._rate)) / self._weight(dpid)

    def _schedule(self, port: _Port, at: float) -> None:
        self._turns += 1
        port.turn = self._turns
        heapq.heappush(self._due.setdefault(port.at.dpid, []), (at, port.turn, port))

    def _probe(self, port: _Port, now: float) -> Probe:
        self._sent += 1
        while port.fresh and port.fresh[next(iter(port.fresh))] < self._listened - self._fresh_s:
            del port.fresh[next(iter(port.fresh))]
        port.fresh[self._sent] = self._listened
        port.sent_at = now
        port.unanswered += 1
        if port.peer and port.unanswered == MISSES:
            port.missed_at = self._listened
            self._suspects.add(port)
        return Probe(port.at, self._frames.frame(port.head, self._sent))

    def lost(self) -> list[LinkLost]:
        """Return the links over which probes have stopped arriving.

        A link is lost only if both of its switches have sent a message since the last missed probe. Probes that were
        missed while a switch was silent do not count: the network between the switch and this process may have lost
        them. Echo requests find silent switches."""
        grace = min(GRACE_S, self._timeout / 5)
        changes = []
        for port in list(self._suspects):
            assert port.peer
            both_alive_at = min(self._alive[port.at.dpid], self._alive_at(port.peer.dpid))
            since = max(port.heard_at, *(self._resumed.get(end.dpid, 0.0) for end in (port.at, port.peer)))
            lost_at = max(port.missed_at + grace, since + self._timeout)
            if both_alive_at >= port.missed_at and self._listened > lost_at:
                changes.append(LinkLost(port.at, port.peer))
                self._unlink(port)
                self._restart(port)
        return changes

    def alive(self, dpid: Dpid) -> None:
        """Record that a message of the switch has arrived."""
        if dpid in self._alive:
            self._record_message(dpid, self._alive)
            self._spoke.add(dpid)

    def _record_message(self, dpid: Dpid, alive: dict[Dpid, float]) -> None:
        if self._listened > alive.get(dpid, math.inf) + self._timeout / 2:
            self._resumed[dpid] = self._listened
        alive[dpid] = self._listened

    @property
    def listened(self) -> float:
        """Seconds of listening since the start."""
        return self._listened

    def _alive_at(self, dpid: Dpid) -> float:
        """Return the time at which the latest message of a switch arrived, here or at another southbound."""
        return self._alive.get(dpid, self._alive_elsewhere.get(dpid, -math.inf))

    # ---- received probes

    def received(self, dst: PortRef, frame: bytes) -> list[LinkLost | LinkSeen]:
        """Return the changes that follow from an LLDP frame that arrived at ``dst``: a new link, or a moved one."""
        probe = self._frames.read(frame)
        if isinstance(probe, str):
            return self._refuse(RefusedPacket(dst, probe))
        src, counter = probe
        port, at = self._ports.get(src), self._ports.get(dst)
        if self._is_shared and at and src.dpid not in self._alive:
            self._elsewhere.append(HeardProbe(src, dst, counter))
            return []
        if port is None or at is None:
            return self._refuse(RefusedPacket(dst, "not_a_port"))
        if port is at:
            return self._refuse(RefusedPacket(dst, "reflected"))
        if not self._is_fresh(port, counter):
            if not self._is_shared:
                return self._refuse(RefusedPacket(dst, "replayed"))
            # Another southbound may hold the switch by now; this one learns of that later.
            self._elsewhere.append(HeardProbe(src, dst, counter))
            return []
        changes = self._heard(port, dst, counter)
        if dst not in self._one_way and (at.peer != port.at or not at.announced):
            # The link is known only towards this end: a probe from this end may prove the other direction.
            self._schedule(at, at.sent_at + self._first_gap_s(dst.dpid))
        return changes

    def _is_fresh(self, port: _Port, counter: int) -> bool:
        return port.fresh.get(counter, -math.inf) >= self._listened - self._fresh_s

    def _heard(self, port: _Port, at: PortRef, counter: int) -> list[LinkLost | LinkSeen]:
        port.fresh = {later: sent for later, sent in port.fresh.items() if later > counter}
        changes: list[LinkLost | LinkSeen] = []
        if port.peer != at:
            if port.peer is not None:
                changes.append(LinkLost(port.at, port.peer))
                self._unlink(port)
            self._link(port, at)
        port.heard_at, port.unanswered = self._listened, 0
        self._suspects.discard(port)
        if not port.announced:
            port.announced = True
            changes.append(LinkSeen(port.at, at))
        return changes

    def _link(self, port: _Port, peer: PortRef) -> None:
        port.peer, port.announced = peer, False
        self._arriving.setdefault(peer, set()).add(port)
        self._linked[port.at.dpid] += 1
        self._counts = None

    def _unlink(self, port: _Port) -> None:
        if port.peer is not None:
            self._arriving[port.peer].discard(port)
            if not self._arriving[port.peer]:  # a switch may have any number of ports, one after the other
                del self._arriving[port.peer]
            self._linked[port.at.dpid] -= 1
            self._counts = None
        port.peer, port.announced, port.unanswered = None, False, 0
        self._suspects.discard(port)

    # ---- probes between switches of several southbounds

    def share(self, key: bytes) -> None:
        """Sign probes with the key that all southbounds share, and report received probes of other southbounds."""
        if not self._is_shared or key != self._frames.key:
            self._frames = ProbeFrames(key)
        self._is_shared = True

    def expect(self, links: Iterable[tuple[PortRef, PortRef]]) -> None:
        """Treat these links as if probes had just arrived, so that a loss is noticed. New links are announced."""
        for src, dst in links:
            if (port := self._ports.get(src)) and port.peer in (None, dst):
                if port.peer is None:
                    self._link(port, dst)
                port.heard_at, port.unanswered = self._listened, 0
                self._suspects.discard(port)

    def take_elsewhere(self, with_alive: bool) -> ProbesHeard | None:
        """Return the probes of other southbounds that arrived since the last call; None if there is nothing to report.

        ``with_alive``: whether to name the switches that have sent messages since they were last named."""
        probes, self._elsewhere = tuple(self._elsewhere), []
        alive = frozenset(self._spoke if with_alive else ())
        if with_alive:
            self._spoke.clear()
        return ProbesHeard(probes, alive) if self._is_shared and (probes or alive) else None

    def heard_elsewhere(self, report: ProbesHeard) -> list[LinkLost | LinkSeen]:
        """Return the changes of links that follow from a report about probes of this southbound's switches.

        Another southbound has received the probes, or this southbound has received them as probes of another
        southbound."""
        changes: list[LinkLost | LinkSeen] = []
        for dpid in {*report.alive, *(probe.dst.dpid for probe in report.probes)} - self._alive.keys():
            self._record_message(dpid, self._alive_elsewhere)
        for src, dst, counter in report.probes:
            port = self._ports.get(src)
            if port and self._is_fresh(port, counter):
                changes += self._heard(port, dst, counter)
            elif port and not self._is_of_former_holder(port):
                self.refuse(RefusedPacket(dst, "replayed"))
        return changes

    def _is_of_former_holder(self, port: _Port) -> bool:
        """Return whether an unknown probe of the port may come from the southbound that served the switch before."""
        return self._is_shared and self._listened < port.taken_at + self._fresh_s

    # ---- refused packets

    def refuse(self, packet: RefusedPacket) -> None:
        """Count a refused packet."""
        if packet in self._refused or len(self._refused) < MAX_REFUSED:
            self._refused[packet] += 1

    def _refuse(self, packet: RefusedPacket) -> list[LinkLost | LinkSeen]:
        self.refuse(packet)
        return []

    def take_refused(self) -> Mapping[RefusedPacket, int]:
        """Return the number of packets refused since the last call, by port and reason."""
        refused, self._refused = self._refused, Counter()
        return refused


def _next_slot(at: PortRef, now: float, interval_s: float) -> float:
    """Return the next time after ``now`` at which the port is probed, at most one interval later.

    The time is that of a slot (``SLOT_S``). All ports of a block share a slot, because writing to a further switch
    costs more than a further probe in the same write."""
    slot_s = min(SLOT_S, interval_s / 4)
    slots = math.ceil(interval_s / slot_s - 1e-6)
    mine = int(phase(at.dpid) * slots) + at.port // BLOCK
    first = round(now / slot_s) + 1
    return (first + (mine - first) % slots) * slot_s


def phase(dpid: Dpid) -> float:
    """Return a number in [0, 1] for a dpid, by which work for many switches is spread evenly over time.

    The method is Fibonacci hashing (Knuth, The Art of Computer Programming, section 6.4). It uses integers, because a
    dpid may have more bits than a float."""
    return (dpid * GOLDEN % (1 << 64)) / (1 << 64)
