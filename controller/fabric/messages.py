"""Messages about switches, ports, links and hosts: what the southbound reports and is asked to send; and what operators
ask of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from controller.fabric.topology import Dpid, Port, PortRef


@dataclass(frozen=True, slots=True)
class DrainParts:
    """Take these out of use. ``at``: seconds since 1970. Replies with the parts' names when that is saved."""

    names: tuple[str, ...]
    at: float = field(default_factory=time.time)
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class UndrainParts:
    """Use these again. Replies with None when that is saved."""

    names: tuple[str, ...]
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class SwitchConnected:
    """The OpenFlow handshake is done and the ports are known. A reconnect sends it again."""

    dpid: Dpid
    name: str
    ports: tuple[Port, ...]


@dataclass(frozen=True, slots=True)
class SwitchLeft:
    dpid: Dpid


@dataclass(frozen=True, slots=True)
class MastershipLost:
    """Another controller has become the master of the switch: it takes no changes from us any more, and is not ours
    until it connects again."""

    dpid: Dpid
    name: str


@dataclass(frozen=True, slots=True)
class PortChanged:
    dpid: Dpid
    port: Port
    removed: bool = False


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """Discovery believes in the directed link now (sent once, not per probe)."""

    src: PortRef
    dst: PortRef


@dataclass(frozen=True, slots=True)
class LinkLost:
    """Probes have stopped coming although both ports are up. Port and switch losses are not reported here."""

    src: PortRef
    dst: PortRef


@dataclass(frozen=True, slots=True)
class ArpSeen:
    """An ARP packet that a switch handed up. ``target_ip`` is asked for (request) or spoken to (reply)."""

    at: PortRef
    op: Literal["request", "reply"]
    sender_ip: str
    sender_mac: str
    target_ip: str


RefusalReason = Literal[
    "malformed",
    "version",
    "silent",
    "not_reading",
    "tls",
    "duplicate_dpid",
    "too_many",
    "too_many_of_address",
    "too_many_ports",
    "other_certificate",
]


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """An OpenFlow connection was ended for what came by it, or failed to. ``malformed``: bytes that are not OpenFlow.
    ``version``: none in common. ``silent``: no handshake in time. ``not_reading``: what it was sent piled up. ``tls``:
    no or a wrong certificate. ``duplicate_dpid``: a second switch with a known dpid. ``too_many``: connections, in all
    or from one address. ``too_many_ports``: of the switch, or in all. ``other_certificate``: one of another dpid.
    ``peer``: its address and port."""

    peer: str
    dpid: Dpid | None
    reason: RefusalReason


PacketRefusal = Literal["foreign", "malformed", "forged", "replayed", "reflected", "not_a_port", "malformed_arp"]


class RefusedPacket(NamedTuple):
    """A packet that came in at ``at`` and is refused. ``foreign``: LLDP of other senders. ``malformed``: our LLDP,
    incomplete. ``forged``: not signed with this process's key. ``replayed``: a probe that was used before, or that is
    old. ``reflected``: sent back into the port it left. ``not_a_port``: from or to a port that is not up.
    ``malformed_arp``: not whole, or in another station's name."""

    at: PortRef
    reason: PacketRefusal


@dataclass(frozen=True, slots=True)
class PacketsRefused:
    """How many packets were refused since the last such message, which is a second ago at least."""

    counts: Mapping[RefusedPacket, int]


@dataclass(frozen=True, slots=True)
class SwitchFloods:
    """The switch sends more than it is read for, since a second at least."""

    dpid: Dpid


@dataclass(frozen=True, slots=True)
class ProbePorts:
    """These switches have confirmed their rules and hand probes up from now on: probe what is not linked yet."""

    dpids: frozenset[Dpid]


@dataclass(frozen=True, slots=True)
class ProbeAnew:
    """These one-way ports lead elsewhere now: probe them, and forget where they led."""

    ports: frozenset[PortRef]


@dataclass(frozen=True, slots=True)
class SendArpRequest:
    """Ask for ``ip`` out of each of these edge ports, as an ARP probe (RFC 5227: sender address 0.0.0.0)."""

    ip: str
    ports: tuple[PortRef, ...]


@dataclass(frozen=True, slots=True)
class SendArpReply:
    """Tell the asker at ``at`` that ``ip`` is at ``mac``."""

    at: PortRef
    asker_ip: str
    asker_mac: str
    ip: str
    mac: str


@dataclass(frozen=True, slots=True)
class ForgetParts:
    """Parts that are down are not expected any more. Replies with all that are forgotten (``KnownParts.forget``)."""

    names: tuple[str, ...]
    reply: Future[Any] = field(default_factory=Future, compare=False)
