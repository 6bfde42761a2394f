"""Vocabulary of the remembered parts of a fabric, present or not: switches, cables between them, and hosts.

``known_parts`` owns the parts themselves. A part has the name that operators see: ``leaf1``, ``leaf1:3>spine2``,
``10.0.1.2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from controller.fabric.topology import Dpid, Host, Link, PortNo, PortRef, Switch
from controller.fabric.topology_state import DeclaredHost

UNKNOWN_DPID = Dpid(-1)
"""Dpid in place of the unknown dpid of a switch that only the inventory file names; no real switch has this dpid."""

DECLARED = "declared "
"""Prefix of the id of a part that was never seen; the name of the part follows."""

MAX_NAMES = 1000
"""Largest number of part names in one request."""

WhyNot = Mapping[str, str]
"""Error texts by name, for names that mean something other than a part of the fabric."""

NO_REASONS: WhyNot = {}


def unique_name(name: str, dpid: Dpid, shared_names: frozenset[str]) -> str:
    """Return the name of a switch, with its dpid (``leaf1(0x1)``) if several switches have the name."""
    return f"{name}({dpid:#x})" if name in shared_names else name


class PartKind(StrEnum):
    SWITCH = "switch"
    LINK = "link"
    HOST = "host"


class PartKey(NamedTuple):
    """Identity of a part."""

    kind: PartKind
    id: str
    """Dpid of a switch, both ports of a cable, or address of a host."""


class End(NamedTuple):
    """A port, with the last known names of its switch and of the port; port number 0 means the whole switch."""

    at: PortRef
    switch: str
    port: str = ""

    def with_unique_name(self, shared_names: frozenset[str]) -> End:
        """Return the end with the dpid after the name of its switch if several switches have the name."""
        return self._replace(switch=unique_name(self.switch, self.at.dpid, shared_names)) if self.seen else self

    @property
    def seen(self) -> bool:
        """Whether the dpid is known: the switch has connected, or the inventory file has its dpid."""
        return self.at.dpid != UNKNOWN_DPID

    @property
    def name(self) -> str:
        """Printed name: ``leaf1:3``, or ``leaf1:leaf1-eth3`` if the port number is unknown."""
        port = str(self.at.port) if self.at.port else self.port
        return f"{self.switch}:{port}" if port else self.switch


@dataclass(frozen=True, slots=True)
class Part:
    """A switch, cable or host that is remembered."""

    key: PartKey
    ends: tuple[End, ...]
    """Ends of the part: the switch itself, both ends of a cable, or the port of a host."""
    down_since: float | None = None
    """Time since which the part is down, in seconds since 1970; None while it is present or may still appear."""

    @property
    def kind(self) -> PartKind:
        return self.key.kind

    @property
    def seen(self) -> bool:
        """Whether the part was ever present."""
        return all(end.seen for end in self.ends)

    @property
    def name(self) -> str:
        """Name that operators see."""
        if self.key.id.startswith(DECLARED):
            return self.key.id.removeprefix(DECLARED)
        if self.kind is PartKind.HOST:
            return self.key.id
        return self.ends[0].name if self.kind is PartKind.SWITCH else f"{self.ends[0].name}>{self.ends[1].switch}"


def switch_key(dpid: Dpid) -> PartKey:
    return PartKey(PartKind.SWITCH, f"{dpid:#x}")


def cable_key(a: PortRef, b: PortRef) -> PartKey:
    return PartKey(PartKind.LINK, " ".join(f"{end.dpid:#x}:{end.port}" for end in sorted((a, b))))


def host_key(ip: str) -> PartKey:
    return PartKey(PartKind.HOST, ip)


def switch_part(switch: Switch) -> Part:
    return Part(switch_key(switch.dpid), (End(PortRef(switch.dpid, PortNo(0)), switch.name),))


def cable_part(link: Link, switches: Mapping[Dpid, Switch]) -> Part:
    """Return the part of a cable. ``switches``: the connected switches."""
    return Part(cable_key(link.src, link.dst), tuple(_end(at, switches) for at in sorted((link.src, link.dst))))


def host_part(host: Host, switches: Mapping[Dpid, Switch]) -> Part:
    return Part(host_key(host.ip), (_end(host.at, switches),))


def _end(at: PortRef, switches: Mapping[Dpid, Switch]) -> End:
    port = switches[at.dpid].ports.get(at.port)
    return End(at, switches[at.dpid].name, port.name if port else "")


# ---- declarations of the inventory file

PortName = tuple[str, str]
"""Names of a switch and of its port."""


class SwitchRole(StrEnum):
    """Role of a switch in the fabric, from the inventory file."""

    LEAF = "leaf"
    SPINE = "spine"


@dataclass(frozen=True, slots=True)
class DeclaredSwitch:
    """A switch of the inventory file."""

    name: str
    dpid: Dpid | None = None
    """Dpid of the switch; None for any switch with this name."""
    role: SwitchRole | None = None
    """Role of the switch; None if it is not declared."""


@dataclass(frozen=True, slots=True)
class DeclaredCable:
    """A cable between two ports."""

    a: PortName
    b: PortName


@dataclass(frozen=True, slots=True)
class DeclaredBundle:
    """Number of cables between two switches, at any ports."""

    a: str
    b: str
    cables: int


@dataclass(frozen=True, slots=True)
class Declared:
    """Contents of the inventory file. Switches named by cables, bundles or hosts are declared too."""

    hosts: tuple[DeclaredHost, ...] = ()
    switches: tuple[DeclaredSwitch, ...] = ()
    cables: tuple[DeclaredCable, ...] = ()
    bundles: tuple[DeclaredBundle, ...] = ()

    @property
    def dpid_of(self) -> dict[str, Dpid | None]:
        """Declared dpid of every switch, by name."""
        of_links = (name for cable in self.cables for name, _ in (cable.a, cable.b))
        of_bundles = (name for bundle in self.bundles for name in (bundle.a, bundle.b))
        implied = (*of_links, *of_bundles, *(host.switch for host in self.hosts))
        return {**dict.fromkeys(implied), **{switch.name: switch.dpid for switch in self.switches}}

    @property
    def role_of(self) -> dict[Dpid | str, SwitchRole]:
        """Role of each switch that has one, by dpid, or by name if the dpid is not declared."""
        return {switch.dpid or switch.name: switch.role for switch in self.switches if switch.role}
