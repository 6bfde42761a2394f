"""Messages about switches, ports, links and hosts: southbound reports, packets to send, operators' requests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from controller.fabric.topology import Dpid, Port, PortRef


@dataclass(frozen=True, slots=True)
class DrainParts:
    """Take parts of the fabric out of use. The reply, sent once the drain is saved, has the names of the parts."""

    names: tuple[str, ...]
    at: float = field(default_factory=time.time)
    """Time of the request in seconds since 1970."""
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class UndrainParts:
    """Put drained parts back into use. The reply, sent once the change is saved, is None."""

    names: tuple[str, ...]
    reply: Future[Any] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class SwitchConnected:
    """A switch has completed the OpenFlow handshake, for the first time or again, and reported its ports."""

    dpid: Dpid
    name: str
    ports: tuple[Port, ...]
    generation: int = 0
    """Generation id with which the southbound claimed the switch. Of two claims, the larger id is in force."""


@dataclass(frozen=True, slots=True)
class SwitchLeft:
    dpid: Dpid
    released: bool = False
    """Whether the switch is still connected, but another process serves it now."""


@dataclass(frozen=True, slots=True)
class SwitchesInReach:
    """Switches with a connection to the southbound, even if another southbound serves them. Sent on each change."""

    dpids: frozenset[Dpid]
    silent: frozenset[Dpid] = frozenset()
    """Further switches whose connections have not ended, but carry no messages to the southbound."""


@dataclass(frozen=True, slots=True)
class SwitchMoved:
    """A southbound has claimed a switch anew while the switch stayed connected.

    The southbound may be another one than before, or the same. Another controller may have changed the rules of the
    switch in between."""

    dpid: Dpid
    name: str
    ports: tuple[Port, ...]
    generation: int = 0
    """Generation id with which the southbound claimed the switch. Of two claims, the larger id is in force."""


@dataclass(frozen=True, slots=True)
class MastershipLost:
    """Another controller is the master of the switch, which accepts no changes from this controller.

    The other controller stays the master until the switch reconnects."""

    dpid: Dpid
    name: str
    ahead: int = 0
    """Generation id of the switch, if it is larger than any id that this controller can use; else 0.

    The value is also 0 while the generation id is unknown."""
    refused: bool = True
    """Whether the switch has refused a claim or a write, and the southbound has not reported the refusal before.

    False if the switch has only reported its new master, or if a southbound reports the same refusal again."""
    newer: int = 0
    """Generation id of the switch; 0 while it is unknown."""


@dataclass(frozen=True, slots=True)
class GenerationRaised:
    """Another controller has raised the generation id of a switch, whose master is still this controller.

    The switch refuses the next claim unless the claim has a larger id. The southbound repeats the message while the id
    is raised, and sends it once more after the switch has the id of this controller again."""

    dpid: Dpid
    name: str
    generation: int
    is_ahead: bool
    """Whether the id is larger than any id that this controller can use."""


@dataclass(frozen=True, slots=True)
class PortChanged:
    dpid: Dpid
    port: Port
    removed: bool = False


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """Discovery has confirmed the directed link. Sent once per link, not per probe."""

    src: PortRef
    dst: PortRef


@dataclass(frozen=True, slots=True)
class LinkLost:
    """Probes over a link have stopped although both ports are up.

    ``PortChanged`` and ``SwitchLeft`` report the losses of ports and switches."""

    src: PortRef
    dst: PortRef


@dataclass(frozen=True, slots=True)
class ArpSeen:
    """An ARP packet that a switch sent to the controller."""

    at: PortRef
    op: Literal["request", "reply"]
    sender_ip: str
    sender_mac: str
    target_ip: str
    """Address whose MAC address the sender requests, or to which the sender replies."""


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
    "no_roles",
]


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """An OpenFlow connection that the controller ended, with the reason.

    - ``malformed``: bytes that are not OpenFlow.
    - ``version``: no common version.
    - ``silent``: no handshake in time.
    - ``not_reading``: the peer did not read what was sent.
    - ``tls``: no certificate or a wrong one.
    - ``duplicate_dpid``: a second switch with a known dpid.
    - ``too_many``, ``too_many_of_address``: too many connections, in all or from one address.
    - ``too_many_ports``: too many ports, of the switch or in all.
    - ``other_certificate``: the certificate of another dpid.
    - ``no_roles``: a switch without OpenFlow roles, although several controllers divide the switches among them."""

    peer: str
    """Address and port of the peer."""
    dpid: Dpid | None
    reason: RefusalReason


PacketRefusal = Literal["foreign", "malformed", "forged", "replayed", "reflected", "not_a_port", "malformed_arp"]


class RefusedPacket(NamedTuple):
    """Port where a refused packet arrived, and the reason for the refusal.

    - ``foreign``: LLDP of other senders.
    - ``malformed``: incomplete LLDP of this controller.
    - ``forged``: a probe that is not signed with the key of this process.
    - ``replayed``: a probe that was used before or is old.
    - ``reflected``: a probe that returned to the port it left.
    - ``not_a_port``: a probe from or to a port that is not up.
    - ``malformed_arp``: incomplete ARP, or ARP in the name of another station."""

    at: PortRef
    reason: PacketRefusal


@dataclass(frozen=True, slots=True)
class PacketsRefused:
    """Number of refused packets since the last ``PacketsRefused`` message; there is at most one message a second."""

    counts: Mapping[RefusedPacket, int]


@dataclass(frozen=True, slots=True)
class SwitchFloods:
    """The switch has, for at least a second, sent more than the controller reads."""

    dpid: Dpid


@dataclass(frozen=True, slots=True)
class ProbePorts:
    """Probe the ports of these switches over which no link is known.

    These switches have just confirmed the rules that send arriving probes to the controller."""

    dpids: frozenset[Dpid]


@dataclass(frozen=True, slots=True)
class ProbeAnew:
    """Forget where these one-way ports lead, and probe them again: an optical switch has connected them elsewhere."""

    ports: frozenset[PortRef]


class HeardProbe(NamedTuple):
    """A signed probe from a switch of one southbound that arrived at a switch of another southbound."""

    src: PortRef
    dst: PortRef
    counter: int
    """Number of the probe, from which the sending southbound knows how old the probe is."""


@dataclass(frozen=True, slots=True)
class ProbesHeard:
    """Probes from switches of one southbound that arrived at switches of another southbound.

    The receiving southbound reports them to the control loop, which forwards the report to the senders."""

    probes: tuple[HeardProbe, ...]
    alive: frozenset[Dpid] = frozenset()
    """Switches of the receiving southbound that have sent it a message since its last report."""


@dataclass(frozen=True, slots=True)
class ExpectLinks:
    """Expect probes over these known links, after a switch has changed its southbound.

    During the change no southbound reported probes over these links."""

    links: tuple[tuple[PortRef, PortRef], ...]
    known: frozenset[Dpid] = frozenset()
    """Switches in which another southbound may have installed rules: their first list of rules may have any size."""


@dataclass(frozen=True, slots=True)
class SendArpRequest:
    """Send an ARP request for ``ip`` out of these edge ports, as an ARP probe (RFC 5227: sender address 0.0.0.0)."""

    ip: str
    ports: tuple[PortRef, ...]


@dataclass(frozen=True, slots=True)
class SendArpReply:
    """Send the host at ``at`` an ARP reply: ``ip`` has the MAC address ``mac``."""

    at: PortRef
    asker_ip: str
    asker_mac: str
    ip: str
    mac: str


@dataclass(frozen=True, slots=True)
class ForgetParts:
    """Stop expecting parts that are down. The reply has all forgotten parts (``KnownParts.forget``)."""

    names: tuple[str, ...]
    reply: Future[Any] = field(default_factory=Future, compare=False)
