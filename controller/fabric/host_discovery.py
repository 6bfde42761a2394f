"""Discovery of hosts without flooding: ARP requests of the controller at edge ports, and answers to waiting hosts.

A host has moved if the known port of its address is down and the host sends from another port. If the known port is up,
the controller first sends an ARP request there (``HostClaims``). The number of these requests is limited, however many
claims there are.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import islice
from typing import Any

from controller.fabric.messages import ArpSeen, SendArpReply, SendArpRequest
from controller.fabric.refusals import PortCounts
from controller.fabric.topology import PortRef
from controller.fabric.topology_state import Learned, TopologyState
from controller.shared_map import differing, subtract

ASK_AGAIN_S = 1.0
"""Shortest time in seconds between two requests for one address."""
WAIT_S = 3.0
"""Seconds for which a host that requested an unknown address waits for the answer."""
FORGET_S = 60.0
"""Seconds after which the time of the latest request for an address is forgotten."""
MAX_QUESTIONS = 64
"""Largest number of addresses requested in one second; further addresses wait for the next second."""
MAX_LOOKED_AT = 256
"""Largest number of missing addresses that are examined in one tick, in order to find addresses to request now.

Addresses that were requested less than ``ASK_AGAIN_S`` ago are not requested again, but they count towards this
number."""
MAX_QUESTION_FRAMES = 10_000
"""Largest number of request frames in one second; an unknown address is requested at every edge port.

At least one address per second is requested, even if that takes more frames."""
MAX_WAITED_FOR = 4
"""Largest number of unknown addresses that hosts of one port may wait for.

A host that makes up addresses thus delays no other host."""
ASK_SILENT_AGAIN_S = 60.0
"""Shortest time in seconds between two requests to a host whose port is known and whose MAC address is unknown."""
MAX_SILENT_QUESTIONS = 16
"""Largest number of requests in one second to hosts with a known port and an unknown MAC address.

No other host waits for the answers to these requests."""

NO_ADDRESS = "0.0.0.0"
"""Sender address of an ARP probe (RFC 5227), which claims no address."""

QUESTIONS = 3
ASK_EVERY_S = 1.0
"""Seconds between two requests to the known port of an address that a host at another port claims.

If none of ``QUESTIONS`` requests is answered, the address moves to the other port."""
SETTLED_FOR_S = 10.0
"""Seconds after a refusal during which further claims to the address are refused, without asking its known port."""
RECENT_S = 60.0
"""Seconds for which a refused claim raises an alarm."""
MAX_INQUIRIES = 64
MAX_INQUIRIES_OF_A_PORT = 4
"""Largest number of claims from one port that are checked at the same time; ``MAX_INQUIRIES`` limits all ports
together."""


@dataclass(slots=True)
class Inquiry:
    """A claim to an address, by a host at another port."""

    at: PortRef
    """Port of the host that claims the address."""
    mac: str
    """MAC address of the host that claims the address."""
    old: PortRef
    """Known port of the address, to which the requests are sent."""
    asked: int
    """Number of requests sent to ``old``."""
    asked_at: float


class HostClaims:
    """Claims to known addresses from other ports while the known ports are up."""

    def __init__(self) -> None:
        self.refused = PortCounts()
        """Refused claims, by the port that they came from."""
        self._inquiries: dict[str, Inquiry] = {}
        self._settled_until: dict[str, float] = {}

    def claimed(self, ip: str, mac: str, at: PortRef, old: PortRef, now: float) -> bool:
        """Record a claim from ``at`` and return whether to send a request to ``old``, the known port of the address."""
        inquiry = self._inquiries.get(ip)
        if inquiry and inquiry.at == at:
            inquiry.mac = mac
            return False
        open_here = sum(inquiry.at == at for inquiry in self._inquiries.values())
        busy = len(self._inquiries) >= MAX_INQUIRIES or open_here >= MAX_INQUIRIES_OF_A_PORT
        if inquiry or busy or now < self._settled_until.get(ip, now):
            self.refuse(at, now)
            return False
        self._inquiries[ip] = Inquiry(at, mac, old, 1, now)
        return True

    def refuse(self, at: PortRef, now: float) -> None:
        """Record that a claim from this port is refused."""
        self.refused.count(at, 1, now)

    def alive(self, ip: str, at: PortRef, now: float) -> None:
        """Record that the owner of the address sent a packet at ``at``; claims from other ports are refused."""
        inquiry = self._inquiries.pop(ip, None)
        if inquiry and inquiry.at != at:
            self._settled_until[ip] = now + SETTLED_FOR_S
            self.refuse(inquiry.at, now)

    def advance(self, now: float) -> tuple[list[SendArpRequest], dict[str, Inquiry]]:
        """Return due requests, each to one port, and claims to addresses that have moved, by address.

        An address has moved when the known port has not answered any of ``QUESTIONS`` requests."""
        questions, moved = [], {}
        for ip, inquiry in list(self._inquiries.items()):
            if now < inquiry.asked_at + ASK_EVERY_S:
                continue
            if inquiry.asked < QUESTIONS:
                inquiry.asked, inquiry.asked_at = inquiry.asked + 1, now
                questions.append(SendArpRequest(ip, (inquiry.old,)))
            else:
                moved[ip] = self._inquiries.pop(ip)
        if self._settled_until:
            self._settled_until = {ip: until for ip, until in self._settled_until.items() if now < until}
        return questions, moved


@dataclass(frozen=True, slots=True)
class _Asker:
    """Host that requested an address, and the monotonic time after which it gets no answer."""

    at: PortRef
    ip: str
    mac: str
    until: float


class _Turns:
    """Order in which missing addresses are requested.

    Jobs take turns, so that a job with many missing addresses delays no other job. Addresses that were never
    requested come first and get half of the turns."""

    def __init__(self) -> None:
        self._missing: Mapping[Hashable, Sequence[str]] = {}
        self._queues: dict[Hashable, deque[str]] = {}
        self._never: OrderedDict[Hashable, int] = OrderedDict()
        self._again: OrderedDict[Hashable, None] = OrderedDict()
        self._turn = 0
        self.addresses = 0
        self._named: Counter[str] = Counter()

    def follow(self, missing: Mapping[Hashable, Sequence[str]]) -> None:
        before, self._missing = self._missing, missing
        for who, known, ips in differing(before, missing):
            wanted, queue = set(ips or ()), self._queues.get(who, deque[str]())
            never = set(islice(queue, self._never.get(who, 0))) & wanted | (wanted - set(known or ()))
            asked = [ip for ip in queue if ip in wanted and ip not in never]
            self._set(who, (*(ip for ip in ips or () if ip in never), *asked), len(never))

    def _set(self, who: Hashable, ips: Sequence[str], never: int) -> None:
        before = self._queues.pop(who, ())
        self.addresses += len(ips) - len(before)
        for ip in before:
            subtract(self._named, ip)
        self._named.update(ips)
        self._never.pop(who, None)
        self._again.pop(who, None)
        if ips:
            self._queues[who] = deque(ips)
            if never:
                self._never[who] = never
            else:
                self._again[who] = None

    def __contains__(self, ip: str) -> bool:
        return ip in self._named

    def next(self) -> str:
        """Return the address to request next; some address must be missing."""
        self._turn += 1
        if self._never and (self._turn % 2 or not self._again):
            who, left = next(iter(self._never.items()))
            self._never[who] = left - 1
            self._never.move_to_end(who)
            if left == 1:
                del self._never[who]
                self._again[who] = None
        else:
            who = next(iter(self._again))
            self._again.move_to_end(who)
        queue = self._queues[who]
        queue.rotate(-1)
        return queue[-1]


class HostDiscovery:
    """Discovery of hosts; the hosts that it finds are recorded in ``topology``."""

    def __init__(self, topology: TopologyState) -> None:
        self.claims = HostClaims()
        self._topology = topology
        self._asked_at: dict[str, float] = {}
        self._asked: deque[float] = deque()
        self._limit = MAX_QUESTIONS
        self._turns = _Turns()
        self._silent_asked_at: dict[str, float] = {}
        self._silent_due = 0.0
        self._waiting: dict[str, dict[str, _Asker]] = {}
        self._waiting_at: Counter[PortRef] = Counter()
        self._forgot_at = -math.inf

    def arp_seen(self, packet: ArpSeen, now: float) -> tuple[Learned, list[SendArpReply], list[SendArpRequest]]:
        """Process an ARP packet, and return what it says about its sender and which ARP packets to send.

        The first value is the result of ``TopologyState.host_seen`` for the sender's address. The second value has the
        replies to hosts that wait for this address. The third value has requests to send: for an unknown address that
        the sender looks for, or to the known port of an address that the sender claims."""
        at, ip, mac = packet.at, packet.sender_ip, packet.sender_mac
        if self._topology.is_fabric_port(at):
            return "ignored", [], []
        if ip != NO_ADDRESS and not _is_host(ip):
            return "ignored", [], []
        learned: Learned = (
            "known" if ip == NO_ADDRESS else self._topology.host_seen(ip, mac, at, now, ip in self._turns)
        )
        if learned == "refused":
            self.claims.refuse(at, now)
        if learned == "contested":
            old = self._topology.place_of(ip)
            assert old
            return learned, [], [SendArpRequest(ip, (old,))] if self.claims.claimed(ip, mac, at, old, now) else []
        if learned in ("refused", "ignored"):
            return learned, [], []
        self.claims.alive(ip, at, now)
        answers = [] if ip == NO_ADDRESS else self._answers(ip, mac, now)
        questions: list[SendArpRequest] = []
        wanted = packet.op == "request" and packet.target_ip != ip and _is_host(packet.target_ip)
        if wanted and self._topology.place_of(packet.target_ip) is None:
            questions = self._wait_for(packet.target_ip, _Asker(at, ip, mac, now + WAIT_S), now)
        return learned, answers, questions

    def _wait_for(self, ip: str, asker: _Asker, now: float) -> list[SendArpRequest]:
        self._forget_old(now)
        waiting = self._waiting.get(ip, {})
        if asker.ip not in waiting:
            if self._waiting_at[asker.at] >= MAX_WAITED_FOR:
                return []
            self._waiting_at[asker.at] += 1
        self._waiting[ip] = waiting | {asker.ip: asker}
        return self.request([ip], now)

    def adopt(self, ip: str, at: PortRef) -> None:
        """Place an unknown host where the rules of a switch say that it is (``TopologyState.adopt_host``)."""
        self._topology.adopt_host(ip, at, ip in self._turns)

    def advance(self, missing: Mapping[Any, Sequence[str]], now: float) -> list[SendArpRequest]:
        """Move hosts that have not answered at their old port, and return the requests that are due.

        ``missing``: addresses that jobs wait for, by job. The caller passes the same sequences as before for jobs whose
        addresses have not changed."""
        contested, moved = self.claims.advance(now)
        for ip, claim in moved.items():
            if self._topology.place_of(ip) == claim.old:
                self._topology.move_host(ip, claim.mac, claim.at, now)
        return self._ask_in_turn(missing, now) + contested + self._request_silent_hosts(now)

    def _ask_in_turn(self, missing: Mapping[Any, Sequence[str]], now: float) -> list[SendArpRequest]:
        self._turns.follow(missing)
        if not self._turns.addresses:
            return []
        room = self._requests_left(now)
        due: dict[str, None] = {}
        for _ in range(min(self._turns.addresses, MAX_LOOKED_AT)):
            if len(due) >= room:
                break
            ip = self._turns.next()
            if self._asked_at.get(ip, -math.inf) <= now - ASK_AGAIN_S:
                due[ip] = None
        return self.request(due, now)

    def _request_silent_hosts(self, now: float) -> list[SendArpRequest]:
        """Return requests, once a second, to some of the declared or adopted hosts whose MAC address is unknown."""
        if now < self._silent_due:
            return []
        self._silent_due = now + ASK_AGAIN_S
        again = now - ASK_SILENT_AGAIN_S
        self._silent_asked_at = {ip: asked for ip, asked in self._silent_asked_at.items() if asked > again}
        silent = (
            host
            for host in self._topology.fabric.hosts.values()
            if host.mac is None and host.ip not in self._silent_asked_at and self._topology.is_up(host.at)
        )
        asked = list(islice(silent, MAX_SILENT_QUESTIONS))
        self._silent_asked_at |= {host.ip: now for host in asked}
        return [SendArpRequest(host.ip, (host.at,)) for host in asked]

    def request(self, ips: Iterable[str], now: float) -> list[SendArpRequest]:
        """Return requests for these addresses at every edge port; each address is requested at most once a second."""
        self._forget_old(now)
        due = [ip for ip in dict.fromkeys(ips) if self._asked_at.get(ip, -math.inf) <= now - ASK_AGAIN_S]
        if not due:
            return []
        everywhere = self._topology.edge_ports(now)
        if not everywhere:
            return []
        due = due[: self._requests_left(now)]
        self._asked_at |= dict.fromkeys(due, now)
        self._asked.extend([now] * len(due))
        return [SendArpRequest(ip, everywhere) for ip in due]

    def _requests_left(self, now: float) -> int:
        while self._asked and self._asked[0] <= now - ASK_AGAIN_S:
            self._asked.popleft()
        if len(self._asked) >= self._limit:
            return 0
        ports = len(self._topology.edge_ports(now))
        if ports == 0:
            return 0
        self._limit = min(MAX_QUESTIONS, max(1, MAX_QUESTION_FRAMES // ports))
        return max(0, self._limit - len(self._asked))

    def _answers(self, ip: str, mac: str, now: float) -> list[SendArpReply]:
        askers = self._waiting.pop(ip, {}).values()
        return [SendArpReply(asker.at, asker.ip, asker.mac, ip, mac) for asker in askers if asker.until > now]

    def _forget_old(self, now: float) -> None:
        if now < self._forgot_at + ASK_AGAIN_S:
            return
        self._forgot_at = now
        self._asked_at = {ip: at for ip, at in self._asked_at.items() if at > now - FORGET_S}
        self._waiting = {
            target: current
            for target, waiting in self._waiting.items()
            if (current := {who: asker for who, asker in waiting.items() if asker.until > now})
        }
        self._waiting_at = Counter(asker.at for waiting in self._waiting.values() for asker in waiting.values())


def _is_host(ip: str) -> bool:
    address = ip_address(ip)
    in_this_network = address.version == 4 and address.packed[0] == 0  # 0.0.0.0/8 (RFC 1122)
    return not (address.is_multicast or address.is_loopback or address.is_reserved or in_this_network)
