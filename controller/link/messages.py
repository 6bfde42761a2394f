"""Messages of the link itself, and the types of messages in each direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from controller.fabric.topology import Dpid, PortRef
from controller.link.codec import Reader
from controller.tables.messages import FromSwitches, ToSwitches


class HeardProbe(NamedTuple):
    """A signed probe that arrived at a switch of another southbound than its sender."""

    src: PortRef
    dst: PortRef
    counter: int
    """Number of the probe, which shows its sender how fresh it is."""


@dataclass(frozen=True, slots=True)
class ProbesHeard:
    """Probes of other southbounds, in both directions: from the southbound that heard them, and to the senders."""

    probes: tuple[HeardProbe, ...]
    alive: frozenset[Dpid] = frozenset()
    """Switches of the southbound that heard the probes from which it has had a message since its last report."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """First command of each connection: the southbound announces its switches again, as if they had just connected."""

    session: int
    """Number of the connection, which the southbound repeats in every ``Report``."""
    probe_key: bytes
    """Key that signs the probes of all southbounds."""
    now: float
    """Monotonic time of the control loop in seconds, so that all southbounds poll at the same moments."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Number of messages of this connection that the control loop has taken so far."""

    count: int


@dataclass(frozen=True, slots=True)
class ExpectLinks:
    """Links that the control loop knows from an earlier holder of their first switch, so that their loss is noticed."""

    links: tuple[tuple[PortRef, PortRef], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """First message of each packet of a southbound. Packets with the number of another connection are dropped."""

    session: int
    at: float
    """Monotonic time in seconds at which the packet was made. Times in its messages have the same clock."""


FROM_SOUTHBOUND = Reader(Report, FromSwitches, ProbesHeard)
TO_SOUTHBOUND = Reader(Welcome, Taken, ExpectLinks, ToSwitches, ProbesHeard)
