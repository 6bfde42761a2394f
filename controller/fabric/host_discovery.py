"""Finding hosts without flooding: what ARP packets teach, whom to ask, whom to tell.

Requests for a host that is known are forwarded to it by the switches. The controller asks edge ports for those that are
not, and tells the askers. In: ARP packets and the addresses that somebody waits for. Out: answers and questions as
data. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Literal

from controller.fabric.topology import PortRef
from controller.fabric.topology_update import Learned, TopologyState

ASK_AGAIN_S = 1.0
WAIT_S = 3.0
FORGET_S = 60.0
MAX_QUESTIONS = 64
"""Addresses asked for at once; more wait for the next second."""

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
        self._topology = topology
        self._asked_at: dict[str, float] = {}
        self._waiting: dict[str, dict[str, Asker]] = {}

    def arp_seen(
        self, at: PortRef, op: Literal["request", "reply"], sender: tuple[str, str], target_ip: str, now: float
    ) -> tuple[Learned, list[Answer], list[Question]]:
        """``sender``: address and MAC. Returns what became of the sender's claim, answers to give, questions to ask."""
        if self._topology.is_fabric_port(at):
            return "refused", [], []
        ip, mac = sender
        if ip != NOBODY and not _is_host(ip):
            return "refused", [], []
        learned: Learned = "known" if ip == NOBODY else self._topology.host_seen(ip, mac, at, now)
        if learned == "refused":
            return learned, [], []
        answers = [] if ip == NOBODY else self._tell_waiting(ip, mac, now)
        questions: list[Question] = []
        wanted = op == "request" and target_ip != ip and _is_host(target_ip)
        if wanted and target_ip not in self._topology.fabric.hosts:
            self._waiting.setdefault(target_ip, {})[ip] = Asker(at, ip, mac, now + WAIT_S)
            questions = self.ask([target_ip], now)
        return learned, answers, questions

    def ask(self, ips: Iterable[str], now: float) -> list[Question]:
        """Questions for these addresses, none more often than once a second, those that waited longest first. A host
        whose port is known is asked there, any other at every edge port."""
        self._forget_old(now)
        asked = sum(at > now - ASK_AGAIN_S for at in self._asked_at.values())
        due = [ip for ip in dict.fromkeys(ips) if self._asked_at.get(ip, -math.inf) <= now - ASK_AGAIN_S]
        due.sort(key=lambda ip: self._asked_at.get(ip, -math.inf))
        hosts, questions = self._topology.fabric.hosts, []
        everywhere = self._topology.edge_ports(now) if due else ()
        for ip in due[: max(0, MAX_QUESTIONS - asked)]:
            ports = (hosts[ip].at,) if ip in hosts else everywhere
            if ports:
                self._asked_at[ip] = now
                questions.append(Question(ip, ports))
        return questions

    def _tell_waiting(self, ip: str, mac: str, now: float) -> list[Answer]:
        askers = self._waiting.pop(ip, {}).values()
        return [Answer(asker, ip, mac) for asker in askers if asker.until > now]

    def _forget_old(self, now: float) -> None:
        self._asked_at = {ip: at for ip, at in self._asked_at.items() if at > now - FORGET_S}
        self._waiting = {
            target: current
            for target, waiting in self._waiting.items()
            if (current := {who: asker for who, asker in waiting.items() if asker.until > now})
        }


def _is_host(ip: str) -> bool:
    address = IPv4Address(ip)
    return not (address.is_multicast or address.is_loopback or address.is_reserved or int(address) >> 24 == 0)
