"""Finding hosts without flooding: what ARP packets teach, whom to ask, whom to tell.

Requests for a host that is known are forwarded to it by the switches. The controller asks edge ports for those that are
not, and tells the askers. In: ARP packets and the addresses that somebody waits for. Out: answers and questions as
data. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from controller.fabric.topology import PortRef
from controller.fabric.topology_update import Learned, TopologyState

ASK_AGAIN_S = 1.0
WAIT_S = 3.0
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
        learned: Learned = "known" if ip == NOBODY else self._topology.host_seen(ip, mac, at, now)
        if learned == "refused":
            return learned, [], []
        answers = [] if ip == NOBODY else self._tell_waiting(ip, mac, now)
        questions: list[Question] = []
        if op == "request" and target_ip not in (ip, NOBODY):
            asker = Asker(at, ip, mac, now + WAIT_S)
            if target_ip not in self._topology.fabric.hosts:
                self._waiting.setdefault(target_ip, {})[ip] = asker
                questions = self.ask([target_ip], now)
        return learned, answers, questions

    def ask(self, ips: Iterable[str], now: float) -> list[Question]:
        """Questions for these addresses, none more often than once a second: a host whose port is known is asked there,
        any other at every edge port."""
        self._asked_at = {ip: at for ip, at in self._asked_at.items() if at > now - ASK_AGAIN_S}
        due = [ip for ip in dict.fromkeys(ips) if ip not in self._asked_at]
        hosts, questions = self._topology.fabric.hosts, []
        everywhere = self._topology.edge_ports(now) if due else ()
        for ip in due[: MAX_QUESTIONS - len(self._asked_at)]:
            ports = (hosts[ip].at,) if ip in hosts else everywhere
            if ports:
                self._asked_at[ip] = now
                questions.append(Question(ip, ports))
        return questions

    def _tell_waiting(self, ip: str, mac: str, now: float) -> list[Answer]:
        askers = self._waiting.pop(ip, {}).values()
        self._waiting = {
            target: current
            for target, waiting in self._waiting.items()
            if (current := {who: asker for who, asker in waiting.items() if asker.until > now})
        }
        return [Answer(asker, ip, mac) for asker in askers if asker.until > now]
