"""Lookup of switches and cables by the names that operators use for them.

A switch is named by its name or dpid. A cable is named by the port at either end, with the number or name of the port
(``leaf1:3``, ``0x1:leaf1-eth3``), or by its printed name (``leaf1:3>spine2``). Two switch names mean all cables between
these switches (``leaf1:spine2``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from controller.fabric.parts import MAX_NAMES, Part, PartKind, WhyNot, cable_part, switch_part
from controller.fabric.topology import Dpid, Fabric, PortRef
from signalbox.errors import NO_SUCH_NAME, InvalidInput, cut


def limited(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names as a tuple. Raises ``InvalidInput`` for more than ``MAX_NAMES`` names."""
    found = tuple(names)
    if len(found) > MAX_NAMES:
        raise InvalidInput.of("names", f"at most {MAX_NAMES} (given: {len(found)})")
    return found


def names_of(part: Part) -> set[str]:
    """Return all names of a part: the printed name and other names that operators may use."""
    names = {part.name, part.key.id}
    if part.kind is PartKind.LINK and part.seen:
        a, b = part.ends
        for end, other in ((a, b), (b, a)):
            ports = [str(end.at.port), end.port]
            names |= {f"{switch}:{port}" for switch in (end.switch, f"{end.at.dpid:#x}") for port in ports}
            names.add(f"{end.switch}:{other.switch}")
    return names


class PartNames:
    """Names of the parts of a fabric and of parts that are ``down``.

    A switch that is down is found by its name only if no connected switch has this name."""

    def __init__(self, fabric: Fabric, down: Iterable[Part]) -> None:
        self._fabric = fabric
        self._down = [*down]

    def switches(self, name: str) -> Sequence[Dpid]:
        return self._switches.get(name, ())

    def cables(self, name: str) -> Mapping[frozenset[PortRef], str]:
        """Return the cables with this name as pairs of ports, each with its printed name."""
        return self._cables.get(name) or self._cables.get(name.partition(">")[0], {})

    @cached_property
    def _switches(self) -> Mapping[str, Sequence[Dpid]]:
        there = {dpid: switch_part(switch) for dpid, switch in self._fabric.switches.items()}
        found: defaultdict[str, list[Dpid]] = defaultdict(list)
        taken = {part.name for part in there.values()}
        for part in (*there.values(), *self._down):
            if part.kind is PartKind.SWITCH and part.seen:
                dpid = part.ends[0].at.dpid
                found[part.key.id] = [dpid]
                if dpid in there or part.name not in taken:
                    found[part.name].append(dpid)
        return found

    @cached_property
    def _cables(self) -> Mapping[str, Mapping[frozenset[PortRef], str]]:
        found: defaultdict[str, dict[frozenset[PortRef], str]] = defaultdict(dict)
        switches, links = self._fabric.switches, self._fabric.links.values()
        there = (
            cable_part(link, switches)
            for link in links
            if link.src < link.dst and not link.one_way and {link.src.dpid, link.dst.dpid} <= switches.keys()
        )
        for part in (*there, *self._down):
            if part.kind is PartKind.LINK and part.seen:
                for name in names_of(part):
                    found[name][frozenset(end.at for end in part.ends)] = part.name
        return found

    @cached_property
    def _hosts(self) -> Mapping[str, str]:
        hosts = self._fabric.hosts.values()
        return {f"{self._fabric.name(host.at.dpid)}:{host.at.port}": host.ip for host in hosts}

    def why_not(self, name: str, no_parts: WhyNot) -> tuple[str, str]:
        """Return the error text for a name of no switch and no cable, and the error code as in ``FieldProblem``.

        ``no_parts``: reasons for names of things that are not parts of the fabric."""
        here, colon, _ = name.partition(":")
        if name in no_parts:
            return no_parts[name], ""
        if name in self._never_seen:
            return f"'{cut(name)}' is declared but was never seen; it can be drained once it has been connected", ""
        if not colon or here not in self._switches:
            return (
                f"there is no switch '{cut(here)}'; a part is a switch (spine2), a cable (leaf1:3, by its port), or "
                "all cables between two switches (leaf1:spine2)",
                NO_SUCH_NAME,
            )
        if name in self._hosts:
            return f"'{cut(name)}' leads to host {self._hosts[name]}; only cables between switches can be drained", ""
        return f"'{cut(name)}': {here} has no cable there; signalbox fabric lists those that it has", NO_SUCH_NAME

    @cached_property
    def _never_seen(self) -> frozenset[str]:
        return frozenset(part.name for part in self._down if not part.seen)
