"""Inventory file: declared hosts, switches and cables (docs/reference/file-formats.md#inventory)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from controller.fabric.parts import Declared, DeclaredBundle, DeclaredCable, DeclaredSwitch, SwitchRole
from controller.fabric.topology import Dpid
from controller.fabric.topology_state import DeclaredHost
from controller.toml_files import TomlTable, matching, read_toml
from signalbox.errors import FieldProblem, InvalidInput, cut
from signalbox.ip_addresses import HostAddress

Mac = Annotated[
    str, StringConstraints(to_lower=True), matching("([0-9a-f]{2}:){5}[0-9a-f]{2}", "a MAC such as 02:00:00:00:00:01")
]
Name = Annotated[str, StringConstraints(min_length=1)]
EndName = Annotated[str, matching("[^:]+(:.+)?", "the name of a switch, or of one of its ports such as leaf1:3")]
"""Name of a switch, or of one of its ports."""

MAX_CABLES = 1024


class _Host(TomlTable):
    ip: HostAddress
    mac: Mac | None = None
    switch: str
    port: str


class _Switch(TomlTable):
    name: Name
    dpid: int | None = Field(default=None, ge=1, lt=1 << 64)
    role: SwitchRole | None = None
    rack: Annotated[str, StringConstraints(min_length=1, max_length=63)] = ""


class _Link(TomlTable):
    ends: tuple[EndName, EndName]
    cables: int | None = Field(default=None, ge=1, le=MAX_CABLES)

    @property
    def names(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """Names of switch and port at both ends; the name of the port is empty if the file has none."""
        (a, _, a_port), (b, _, b_port) = (end.partition(":") for end in self.ends)
        return (a, a_port), (b, b_port)

    @property
    def has_ports(self) -> bool:
        return all(port for _, port in self.names)


class _Inventory(TomlTable):
    host: tuple[_Host, ...] = Field(default=())
    switch: tuple[_Switch, ...] = Field(default=())
    link: tuple[_Link, ...] = Field(default=())


def load(path: Path | None) -> Declared:
    """Return the declarations; empty without a file. Raises ``InvalidInput`` with every problem of the file."""
    if path is None:
        return Declared()
    found = read_toml(path, _Inventory)
    try:
        InvalidInput.refuse((*_wrong_links(found.link), *_repeated(found)))
    except InvalidInput as error:
        raise error.within(path) from None
    return Declared(
        tuple(DeclaredHost(host.ip, host.mac, host.switch, host.port) for host in found.host),
        tuple(_switch(one) for one in found.switch),
        tuple(DeclaredCable(*link.names) for link in found.link if link.has_ports),
        tuple(_bundle(link) for link in found.link if not link.has_ports),
    )


def _switch(switch: _Switch) -> DeclaredSwitch:
    dpid = None if switch.dpid is None else Dpid(switch.dpid)
    return DeclaredSwitch(switch.name, dpid, switch.role, switch.rack)


def _bundle(link: _Link) -> DeclaredBundle:
    (a, _), (b, _) = link.names
    return DeclaredBundle(a, b, link.cables or 1)


def _wrong_links(links: tuple[_Link, ...]) -> Iterator[FieldProblem]:
    for n, link in enumerate(links):
        (a, a_port), (b, b_port) = link.names
        if bool(a_port) != bool(b_port):
            message = "name the ports of both ends, as in ['leaf1:leaf1-eth5', 'spine2:spine2-eth1'], or of neither"
            yield FieldProblem(f"link[{n}].ends", message)
        elif link.has_ports and link.cables is not None:
            yield FieldProblem(
                f"link[{n}].cables", "must be left out, because the ends name ports: one cable connects two ports"
            )
        elif (a, a_port) == (b, b_port):
            yield FieldProblem(f"link[{n}].ends", f"both ends are {link.ends[0]}; they must be different")


def _repeated(found: _Inventory) -> Iterator[FieldProblem]:
    """Yield problems: declarations that occur twice, and mixed declarations of cables.

    The cables between two switches must be declared either all by a number or all by their ports."""
    names = Counter(switch.name for switch in found.switch)
    yield from (
        FieldProblem(f"switch[{n}].name", f"another [[switch]] has the name '{cut(switch.name)}' too")
        for n, switch in enumerate(found.switch)
        if names[switch.name] > 1
    )
    ips = Counter(host.ip for host in found.host)
    dpids = Counter(switch.dpid for switch in found.switch if switch.dpid is not None)
    for n, host in enumerate(found.host):
        if ips[host.ip] > 1:
            yield FieldProblem(f"host[{n}].ip", f"another [[host]] has the address {host.ip} too")
    switches_of: defaultdict[str | None, set[str]] = defaultdict(set)
    for host in found.host:
        switches_of[host.mac].add(host.switch)
    for n, host in enumerate(found.host):
        if host.mac is not None and len(switches_of[host.mac]) > 1:
            yield FieldProblem(f"host[{n}].mac", f"a [[host]] at another switch has the same MAC, {host.mac}")
    for n, switch in enumerate(found.switch):
        if switch.rack and switch.dpid is None:
            yield FieldProblem(f"switch[{n}].rack", "needs the dpid of the switch too")
        if switch.dpid is not None and dpids[switch.dpid] > 1:
            yield FieldProblem(f"switch[{n}].dpid", f"another [[switch]] has the same dpid, {switch.dpid:#x}")
    ports = Counter(end for link in found.link if link.has_ports for end in link.names)
    for n, host in enumerate(found.host):
        if (host.switch, host.port) in ports:
            yield FieldProblem(f"host[{n}].port", f"a [[link]] ends at the same port, {host.switch}:{host.port}")
    counted = Counter(_switches(link) for link in found.link if not link.has_ports)
    for n, link in enumerate(found.link):
        pair = _switches(link)
        if taken := [name for name, end in zip(link.ends, link.names, strict=True) if ports[end] > 1]:
            yield FieldProblem(f"link[{n}].ends", f"another [[link]] has the port {taken[0]} too")
        elif counted[pair] > 1 or (link.has_ports and pair in counted):
            message = f"another [[link]] declares the cables between {' and '.join(sorted(pair))}"
            yield FieldProblem(f"link[{n}].ends", message)


def _switches(link: _Link) -> frozenset[str]:
    return frozenset(name for name, _ in link.names)
