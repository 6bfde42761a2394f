"""Two ports claim one address: whoever has it is asked where it was known to be, before anybody is believed.

In: claims by ARP from another port than the one where the address lives, ARP from there, the time. Out: questions for
the old port, and the verdict: refused when anybody answers for the address there, moved when three questions stay
without an answer. Claims cost the owner of the address few questions, however many there are. Pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from controller.fabric.topology import PortRef

QUESTIONS = 3
ASK_EVERY_S = 1.0
SETTLED_FOR_S = 10.0
"""After a refusal further claims are refused without a question for this long."""
RECENT_S = 60.0
MAX_INQUIRIES = 64
MAX_INQUIRIES_OF_A_PORT = 4


@dataclass(slots=True)
class _Inquiry:
    """Somebody at ``at``, with this MAC, says that the address is there now; ``asked`` questions went to ``old``."""

    at: PortRef
    mac: str
    old: PortRef
    asked: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class Moved:
    """Nobody answered for the address at the old port."""

    ip: str
    mac: str
    old: PortRef
    at: PortRef


class HostClaims:
    """``refused``: claims that were not believed since the start, by the port they came from. ``refused_at``: when the
    last was, where that is less than ``RECENT_S`` ago."""

    def __init__(self) -> None:
        self.refused: Counter[PortRef] = Counter()
        self.refused_at: dict[PortRef, float] = {}
        self._inquiries: dict[str, _Inquiry] = {}
        self._settled_until: dict[str, float] = {}

    def claimed(self, ip: str, mac: str, at: PortRef, old: PortRef, now: float) -> bool:
        """A claim from ``at`` for an address that lives at ``old``, whose port is up. True when ``old`` is to be asked
        now."""
        inquiry = self._inquiries.get(ip)
        if inquiry and inquiry.at == at:
            inquiry.mac = mac
            return False
        busy = len(self._inquiries) >= MAX_INQUIRIES or self._open_from(at) >= MAX_INQUIRIES_OF_A_PORT
        if inquiry or busy or now < self._settled_until.get(ip, now):
            self.refuse(at, now)
            return False
        self._inquiries[ip] = _Inquiry(at, mac, old, 1, now)
        return True

    def refuse(self, at: PortRef, now: float) -> None:
        """A claim from this port is not believed."""
        self.refused[at] += 1
        self.refused_at[at] = now

    def alive(self, ip: str, at: PortRef, now: float) -> None:
        """The address lives at ``at``: it spoke there and was believed. No claim from elsewhere holds."""
        inquiry = self._inquiries.pop(ip, None)
        if inquiry and inquiry.at != at:
            self._settled_until[ip] = now + SETTLED_FOR_S
            self.refuse(inquiry.at, now)

    def advance(self, now: float) -> tuple[list[tuple[str, PortRef]], list[Moved]]:
        """Questions that are due, each an address and the port to ask at; and addresses that have moved."""
        questions, moved = [], []
        for ip, inquiry in list(self._inquiries.items()):
            if now < inquiry.asked_at + ASK_EVERY_S:
                continue
            if inquiry.asked < QUESTIONS:
                inquiry.asked, inquiry.asked_at = inquiry.asked + 1, now
                questions.append((ip, inquiry.old))
            else:
                del self._inquiries[ip]
                moved.append(Moved(ip, inquiry.mac, inquiry.old, inquiry.at))
        self.refused_at = {at: refused for at, refused in self.refused_at.items() if now < refused + RECENT_S}
        if self._settled_until:
            self._settled_until = {ip: until for ip, until in self._settled_until.items() if now < until}
        return questions, moved

    def _open_from(self, at: PortRef) -> int:
        return sum(inquiry.at == at for inquiry in self._inquiries.values())
