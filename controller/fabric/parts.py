"""The parts of a fabric that are remembered, whether they are there or not: switches, cables between them, hosts.

Owns the vocabulary; ``known_parts`` owns which parts there are. A part is named as people see it: ``leaf1``,
``leaf1:3>spine2``, ``10.0.1.2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from controller.fabric.topology import Dpid, Host, Link, PortNo, PortRef, Switch
from controller.fabric.topology_state import DeclaredHost

UNKNOWN_DPID = Dpid(-1)
"""Of a switch that only the inventory file names: no switch has it."""

DECLARED = "declared "
"""The id of a part that was never seen is this and its name."""

MAX_NAMES = 1000
"""Names of parts in one request."""

WhyNot = Mapping[str, str]
"""Of names that mean no part of the fabric: why, in words."""

NO_REASONS: WhyNot = {}


def told_apart(name: str, dpid: Dpid, shared_names: frozenset[str]) -> str:
    """A switch's name; ``leaf1(0x1)`` where others have it too."""
    return f"{name}({dpid:#x})" if name in shared_names else name


class PartKind(StrEnum):
    SWITCH = "switch"
    LINK = "link"
    HOST = "host"


class PartKey(NamedTuple):
    """``id``: of a switch its dpid, of a cable its two ports, of a host its address."""

    kind: PartKind
    id: str


class End(NamedTuple):
    """A port, with the names of its switch and of itself as they were last. ``at``: port 0 for a whole switch."""

    at: PortRef
    switch: str
    port: str = ""

    def told_apart(self, shared_names: frozenset[str]) -> End:
        """With the dpid behind the name of its switch, where others have that name too."""
        return self._replace(switch=told_apart(self.switch, self.at.dpid, shared_names)) if self.seen else self

    @property
    def seen(self) -> bool:
        """Its switch has connected, or the file has its dpid."""
        return self.at.dpid != UNKNOWN_DPID

    @property
    def name(self) -> str:
        """``leaf1:3``; of a port that was never seen with its name, ``leaf1:leaf1-eth3``."""
        port = str(self.at.port) if self.at.port else self.port
        return f"{self.switch}:{port}" if port else self.switch


@dataclass(frozen=True, slots=True)
class Part:
    """``ends``: of a switch itself, of a cable both, of a host the port that it is plugged into. ``down_since``:
    seconds since 1970; None while it is there, and before that is known."""

    key: PartKey
    ends: tuple[End, ...]
    down_since: float | None = None

    @property
    def kind(self) -> PartKind:
        return self.key.kind

    @property
    def seen(self) -> bool:
        """It was there at some time."""
        return all(end.seen for end in self.ends)

    @property
    def name(self) -> str:
        """As people see it."""
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
    """``switches``: those that are connected, here and below."""
    return Part(cable_key(link.src, link.dst), tuple(_end(at, switches) for at in sorted((link.src, link.dst))))


def host_part(host: Host, switches: Mapping[Dpid, Switch]) -> Part:
    return Part(host_key(host.ip), (_end(host.at, switches),))


def _end(at: PortRef, switches: Mapping[Dpid, Switch]) -> End:
    port = switches[at.dpid].ports.get(at.port)
    return End(at, switches[at.dpid].name, port.name if port else "")


# ---- what the inventory file declares

PortName = tuple[str, str]
"""The names of a switch and of its port."""


class SwitchRole(StrEnum):
    """What a switch is for in the fabric, as the inventory file says."""

    LEAF = "leaf"
    SPINE = "spine"


@dataclass(frozen=True, slots=True)
class DeclaredSwitch:
    """``dpid``: None where any switch of this name is meant. ``role``: None where it is not declared."""

    name: str
    dpid: Dpid | None = None
    role: SwitchRole | None = None


@dataclass(frozen=True, slots=True)
class DeclaredCable:
    """A cable between two ports."""

    a: PortName
    b: PortName


@dataclass(frozen=True, slots=True)
class DeclaredBundle:
    """So many cables between two switches, at whatever ports."""

    a: str
    b: str
    cables: int


@dataclass(frozen=True, slots=True)
class Declared:
    """All that the file declares. Switches that links and hosts name are declared by that."""

    hosts: tuple[DeclaredHost, ...] = ()
    switches: tuple[DeclaredSwitch, ...] = ()
    cables: tuple[DeclaredCable, ...] = ()
    bundles: tuple[DeclaredBundle, ...] = ()

    @property
    def dpid_of(self) -> dict[str, Dpid | None]:
        """Every switch by its name."""
        of_links = (name for cable in self.cables for name, _ in (cable.a, cable.b))
        of_bundles = (name for bundle in self.bundles for name in (bundle.a, bundle.b))
        implied = (*of_links, *of_bundles, *(host.switch for host in self.hosts))
        return {**dict.fromkeys(implied), **{switch.name: switch.dpid for switch in self.switches}}

    @property
    def role_of(self) -> dict[Dpid | str, SwitchRole]:
        """Of each switch with a role: by its dpid, or by its name where it is declared without."""
        return {switch.dpid or switch.name: switch.role for switch in self.switches if switch.role}
