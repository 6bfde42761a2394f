"""Messages of the link itself, and the types of messages in each direction."""

from __future__ import annotations

from dataclasses import dataclass

from controller.fabric.topology import Dpid
from controller.link.codec import Reader
from controller.tables.messages import FromSwitches, ToSwitches


@dataclass(frozen=True, slots=True)
class Welcome:
    """First command of each connection. The southbound then announces its switches as if they had just connected."""

    session: int
    """Number of the connection, which the southbound repeats in every ``Report``."""
    probe_key: bytes
    """Key that signs the probes of all southbounds."""
    now: float
    """Monotonic time of the control loop in seconds, so that all southbounds poll at the same moments."""
    known: frozenset[Dpid] = frozenset()
    """Switches that may hold any number of rules of an earlier control loop."""
    format: int = 1
    """Format of the packets in both directions (``store.members.LINK_FORMATS``)."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Command that says how many messages of this connection the control loop has taken so far."""

    count: int


@dataclass(frozen=True, slots=True)
class Report:
    """First message of each packet of a southbound. Packets with the number of another connection are dropped."""

    session: int
    at: float
    """Time at which the packet was made, in seconds of the monotonic clock that the messages in the packet use."""


FROM_SOUTHBOUND = Reader(Report, FromSwitches)
TO_SOUTHBOUND = Reader(Welcome, Taken, ToSwitches)
