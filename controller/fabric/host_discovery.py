"""Finding hosts without flooding: what ARP packets teach, whom to ask, whom to tell, whom not to believe.

Requests for a host that is known are forwarded to it by the switches. The controller asks edge ports for those that are
not, and tells the askers. A host that speaks at another port than its own is believed at once when that port is down,
and otherwise after whoever is there was asked (``host_claims``). In: ARP packets and the addresses that somebody waits
for. Out: answers and questions as data. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import islice
from typing import Literal

from controller.fabric.host_claims import HostClaims
from controller.fabric.topology import PortRef
from controller.fabric.topology_update import Learned, TopologyState

ASK_AGAIN_S = 1.0
WAIT_S = 3.0
FORGET_S = 60.0
MAX_QUESTIONS = 64
"""Addresses asked for in one second; more wait for the next."""
MAX_QUESTION_FRAMES = 10_000
"""And frames, because an address that is nowhere is asked for at every edge port; one address is always asked for."""
MAX_WAITED_FOR = 4
"""Unknown addresses that the hosts of one port may wait for: who makes up addresses keeps nobody else waiting."""
ASK_SILENT_AGAIN_S = 60.0
MAX_SILENT_QUESTIONS = 16
"""Hosts whose port is known and whose MAC is not, asked in one second: nobody waits for those."""

NOBODY = "0.0.0.0"  # the sender of an ARP probe (RFC 5227), which claims nothing


@dataclass(frozen=True, slots=True)
class Asker:
    """Who wants to know an address, and until when the answer helps."""

    at: PortRef
    ip: str
    mac: str
    until: float


@dataclass(frozen=True, slots=True)
class Answer:
    asker: Asker
    ip: str
    mac: str


@dataclass(frozen=True, slots=True)
class Question:
    ip: str
    ports: tuple[PortRef, ...]


class HostDiscovery:
    """Learns into ``topology``."""

    def __init__(self, topology: TopologyState) -> None:
        self.claims = HostClaims()
        self._topology = topology
        self._asked_at: dict[str, float] = {}
        self._silent_asked_at: dict[str, float] = {}
        self._silent_due = 0.0
        self._waiting: dict[str, dict[str, Asker]] = {}
        self._waiting_at: Counter[PortRef] = Counter()
        self._forgot_at = -math.inf

    def arp_seen(
        self, at: PortRef, op: Literal["request", "reply"], sender: tuple[str, str], target_ip: str, now: float
    ) -> tuple[Learned, list[Answer], list[Question]]:
        """``sender``: address and MAC. Returns what became of the sender's claim, answers to give, questions to ask."""
        if self._topology.is_fabric_port(at):
            return "ignored", [], []
        ip, mac = sender
        if ip != NOBODY and not _is_host(ip):
            return "ignored", [], []
        learned: Learned = "known" if ip == NOBODY else self._topology.host_seen(ip, mac, at, now)
        if learned == "refused":
            self.claims.refuse(at, now)
        if learned == "contested":
            old = self._topology.fabric.hosts[ip].at
            return learned, [], [Question(ip, (old,))] if self.claims.claimed(ip, mac, at, old, now) else []
        if learned in ("refused", "ignored"):
            return learned, [], []
        self.claims.alive(ip, at, now)
        answers = [] if ip == NOBODY else self._tell_waiting(ip, mac, now)
        questions: list[Question] = []
        wanted = op == "request" and target_ip != ip and _is_host(target_ip)
        if wanted and target_ip not in self._topology.fabric.hosts:
            questions = self._wait_for(target_ip, Asker(at, ip, mac, now + WAIT_S), now)
        return learned, answers, questions

    def _wait_for(self, ip: str, asker: Asker, now: float) -> list[Question]:
        self._forget_old(now)
        waiting = self._waiting.get(ip, {})
        if asker.ip not in waiting:
            if self._waiting_at[asker.at] >= MAX_WAITED_FOR:
                return []
            self._waiting_at[asker.at] += 1
        self._waiting[ip] = waiting | {asker.ip: asker}
        return self.ask([ip], now)

    def advance(self, missing: Iterable[str], now: float) -> list[Question]:
        """Time passes: hosts move that nobody answered for where they were. ``missing``: addresses that somebody waits
        for. Returns the questions that are due."""
        contested, moved = self.claims.advance(now)
        hosts = self._topology.fabric.hosts
        for claim in moved:
            if claim.ip in hosts and hosts[claim.ip].at == claim.old:
                self._topology.move_host(claim.ip, claim.mac, claim.at, now)
        questions = self.ask(missing, now) + [Question(ip, (old,)) for ip, old in contested]
        return questions + self._ask_silent(now)

    def _ask_silent(self, now: float) -> list[Question]:
        """Once a second some of the hosts that were declared or adopted and have not said their MAC."""
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
        return [Question(host.ip, (host.at,)) for host in asked]

    def ask(self, ips: Iterable[str], now: float) -> list[Question]:
        """Questions for these addresses at every edge port, none more often than once a second, those that waited
        longest first."""
        self._forget_old(now)
        due = [ip for ip in dict.fromkeys(ips) if self._asked_at.get(ip, -math.inf) <= now - ASK_AGAIN_S]
        if not due:
            return []
        everywhere = self._topology.edge_ports(now)
        if not everywhere:
            return []
        limit = min(MAX_QUESTIONS, max(1, MAX_QUESTION_FRAMES // len(everywhere)))
        asked = sum(at > now - ASK_AGAIN_S for at in self._asked_at.values())
        due.sort(key=lambda ip: self._asked_at.get(ip, -math.inf))
        due = due[: max(0, limit - asked)]
        self._asked_at |= dict.fromkeys(due, now)
        return [Question(ip, everywhere) for ip in due]

    def _tell_waiting(self, ip: str, mac: str, now: float) -> list[Answer]:
        askers = self._waiting.pop(ip, {}).values()
        return [Answer(asker, ip, mac) for asker in askers if asker.until > now]

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
    address = IPv4Address(ip)
    return not (address.is_multicast or address.is_loopback or address.is_reserved or int(address) >> 24 == 0)
