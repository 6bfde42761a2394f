"""A fabric as a picture: switches in tiers, cables with the loads of both directions, circuits, and colours.

Small fabrics are drawn as a graph, large ones (more than ``MOST_CABLES`` cables) as one matrix for each tier and the
next tier. The time is linear in the size of the fabric.

Loads have the colours of cividis at five points (Nuñez, Anderton, Renslow: Optimizing colormaps with consideration for
color vision deficiency, PLOS ONE 2018). Parts that are down or drained differ in more than colour wherever they are
drawn: by dashes, or by a word.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from math import cos, pi, sin
from typing import TypeVar

from signalbox.live.jobs import LinkAt
from signalbox.live.shown import MOST_CHARS, NAME_CHARS, counted, natural, percent, short
from signalbox.live.state import State, load
from signalbox.v1 import signalbox_pb2 as pb

Switch = TypeVar("Switch", int, str)

MOST_CABLES, MOST_SWITCHES = 256, 1024
"""Largest numbers of cables and of switches that are drawn as a graph; more could not be told apart."""
LEAVES = 0
"""Tier of switches with hosts."""


class Condition(StrEnum):
    """Condition of a switch or cable. ``UNSYNCED``: the rules on a switch are not yet exactly the intended ones."""

    UP = "up"
    UNSYNCED = "not in sync"
    DRAINED = "drained"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Node:
    """A switch in a picture.

    - ``name``: its name, shortened to ``NAME_CHARS``
    - ``part``: its name for ``drain``, which is its dpid if several switches share the name, or the name was shortened
    - ``tier``: 0 for switches with hosts
    - ``x``: horizontal position within its tier, 0 to 1
    - ``hosts``: addresses of the hosts at the switch"""

    dpid: int
    name: str
    part: str
    tier: int
    x: float
    condition: Condition
    hosts: tuple[str, ...]

    @property
    def title(self) -> str:
        """Text that names the switch; no other switch has the same."""
        return _title(self.name, self.part)


@dataclass(frozen=True, slots=True)
class Cable:
    """A cable or a circuit in a picture.

    - ``name``: its name, shortened to ``NAME_CHARS``
    - ``part``: its name for ``drain``, which is its first port by dpid (``0x1:3``) if several switches share a name, or
      the name was shortened
    - ``ends``: dpids of its two switches, the switch of the lower tier first; for a circuit, the sender first
    - ``up`` and ``down``: ports where its links to the higher and the lower tier begin; None for a missing link
    - ``up_load`` and ``down_load``: measured rate divided by capacity; None while unknown
    - ``one_way``: whether it is a circuit; ``up`` is its only link"""

    name: str
    part: str
    ends: tuple[int, int]
    condition: Condition
    up: LinkAt | None
    down: LinkAt | None
    up_load: float | None
    down_load: float | None
    one_way: bool = False

    @property
    def load(self) -> float | None:
        """Larger load of the two directions; None while both are unknown."""
        if self.up_load is None or self.down_load is None:
            return self.up_load if self.down_load is None else self.down_load
        return max(self.up_load, self.down_load)

    @property
    def title(self) -> str:
        """Text that names the cable; no other cable has the same."""
        return _title(self.name, self.part)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Cables between two tiers, or circuits within a tier.

    - ``rows``: switches of the lower tier, from left to right; for circuits, the sending switches
    - ``columns``: switches of the higher tier, from left to right; for circuits, the receiving switches
    - ``cells``: cables between two switches, by their positions (column, row)"""

    rows: Sequence[Node]
    columns: Sequence[Node]
    cells: Mapping[tuple[int, int], Sequence[Cable]]


@dataclass(frozen=True)
class Picture:
    """Picture of a fabric. ``nodes``: switches by dpid. ``cables``: sorted by their ends, then by name."""

    nodes: Mapping[int, Node]
    cables: Sequence[Cable]

    @cached_property
    def without_tiers(self) -> bool:
        """True if all connections between switches are circuits, so that the switches are drawn on a circle."""
        return bool(self.cables) and all(cable.one_way for cable in self.cables)

    def on_circle(self, node: Node) -> tuple[float, float]:
        """Return the position of a switch on the circle, as distances from the left and from the top, 0 to 1."""
        turn = 2 * pi * node.x
        return 0.5 + 0.5 * sin(turn), 0.5 - 0.5 * cos(turn)

    @property
    def tiers(self) -> list[list[Node]]:
        """Switches of each tier, from left to right; the tier of the leaves comes first."""
        found: dict[int, list[Node]] = defaultdict(list)
        for node in self.nodes.values():
            found[node.tier].append(node)
        return [sorted(found[tier], key=lambda node: node.x) for tier in sorted(found)]

    @property
    def as_matrix(self) -> bool:
        """True if there are too many cables or switches for a graph."""
        return len(self.cables) > MOST_CABLES or len(self.nodes) > MOST_SWITCHES

    @cached_property
    def matrices(self) -> Mapping[int, Matrix]:
        """Matrix of each tier: the cables from this tier to the next one, or the circuits within this tier."""
        of_tiers: dict[int, list[Cable]] = defaultdict(list)
        for cable in self.cables:
            of_tiers[self.nodes[cable.ends[0]].tier].append(cable)
        return {tier: self._matrix(of_tiers[tier]) for tier in sorted(of_tiers)}

    def _matrix(self, cables: Sequence[Cable]) -> Matrix:
        rows, columns = (
            sorted(
                (self.nodes[dpid] for dpid in {cable.ends[side] for cable in cables}),
                key=lambda node: (node.tier, node.x),
            )
            for side in (0, 1)
        )
        row_of = {node.dpid: place for place, node in enumerate(rows)}
        column_of = {node.dpid: place for place, node in enumerate(columns)}
        cells: dict[tuple[int, int], list[Cable]] = defaultdict(list)
        for cable in cables:
            cells[column_of[cable.ends[1]], row_of[cable.ends[0]]].append(cable)
        return Matrix(rows, columns, cells)

    def at(self, dpid: int) -> list[Cable]:
        """Return the cables and circuits that end at a switch."""
        return [cable for cable in self.cables if dpid in cable.ends]


def counted_cables(cables: Collection[Cable]) -> str:
    """Return the numbers of cables and circuits in words: ``6 cables``, ``12 circuits``, or both."""
    circuits = sum(cable.one_way for cable in cables)
    found = [counted(len(cables) - circuits, "cable")] if circuits < len(cables) or not circuits else []
    return ", ".join([*found, *([counted(circuits, "circuit")] if circuits else [])])


def described(cable: Cable, picture: Picture) -> str:
    """Return the name and loads of a cable in words, for a tooltip."""
    low, high = (picture.nodes[end].title for end in cable.ends)
    back = "one way" if cable.one_way else f"back {percent(cable.down_load)}"
    loads = f"{low} to {high} {percent(cable.up_load)}, {back}"
    return f"{cable.title}: {loads if cable.condition is Condition.UP else cable.condition}"


def _title(name: str, part: str) -> str:
    return name if part == name else f"{name} ({part})"


def picture(state: State) -> Picture:
    nodes = _nodes(state)
    return Picture(nodes, _cables(state, nodes))


def reloaded(before: Picture, state: State) -> Picture:
    """Return the picture for ``state``, if only rates have changed since the picture ``before``."""
    loads = {at: load(link) for at, link in state.links.items()}
    cables = [
        replace(each, up_load=each.up and loads.get(each.up), down_load=each.down and loads.get(each.down))
        for each in before.cables
    ]
    return Picture(before.nodes, cables)


# ---- switches


def _nodes(state: State) -> dict[int, Node]:
    down = {
        int(part.id, 16): part
        for part in state.parts_down.values()
        if part.kind == pb.PART_KIND_SWITCH and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", part.id)
    }
    whole = {dpid: part.name for dpid, part in down.items()}
    whole |= {dpid: switch.name for dpid, switch in state.switches.items()}
    names = {dpid: short(name, NAME_CHARS) for dpid, name in whole.items()}
    hosts: dict[int, list[str]] = defaultdict(list)
    for host in state.hosts.values():
        hosts[host.at.dpid].append(short(host.ip, NAME_CHARS))
    drained = {part.name for part in state.drains.values()}
    tiers = _tiers(state, names, hosts)
    rows: dict[int, list[int]] = defaultdict(list)
    for dpid in sorted(names, key=lambda dpid: (natural(names[dpid]), dpid)):
        rows[tiers[dpid]].append(dpid)

    bearers = Counter(names.values())

    def condition(dpid: int) -> Condition:
        if dpid not in state.switches:
            return Condition.DOWN
        if not drained.isdisjoint((names[dpid], f"{dpid:#x}")):
            return Condition.DRAINED
        return Condition.UP if state.switches[dpid].in_sync else Condition.UNSYNCED

    return {
        dpid: Node(
            dpid,
            names[dpid],
            names[dpid] if bearers[names[dpid]] == 1 and names[dpid] == whole[dpid] else f"{dpid:#x}",
            tier,
            (place + 0.5) / len(row),
            condition(dpid),
            tuple(hosts[dpid]),
        )
        for tier, row in rows.items()
        for place, dpid in enumerate(row)
    }


def _tiers(state: State, names: Mapping[int, str], hosts: Mapping[int, Sequence[str]]) -> dict[int, int]:
    """Return the tier of each switch by dpid: its distance in cables from the nearest switch of tier 0.

    Tier 0 has the switches with hosts. The controller finds hosts only when jobs name them. So tier 0 also has switches
    whose names resemble those of switches with hosts (``leaf3`` like ``leaf1``), unless two switches of tier 0 would be
    neighbours. Before any host is found, tier 0 has the switches that have an up port without a link. A switch that no
    cables connect to tier 0 has the tier of switches with similar names."""
    neighbours: dict[int, set[int]] = {dpid: set() for dpid in names}
    for link in state.links.values():
        if link.one_way:
            continue
        neighbours.setdefault(link.src.dpid, set()).add(link.dst.dpid)
        neighbours.setdefault(link.dst.dpid, set()).add(link.src.dpid)
    first = {dpid for dpid in names if hosts.get(dpid)} or {
        dpid for dpid, switch in state.switches.items() if _unused_ports(switch, state)
    }
    stems = {_stem(names[dpid]) for dpid in first}
    alike = {dpid for dpid, name in names.items() if _stem(name) in stems}
    if not any(neighbours[dpid] & alike for dpid in alike):
        first = alike
    tiers = distances(neighbours, first)
    of_stem = {_stem(names[dpid]): tier for dpid, tier in tiers.items() if dpid in names}
    return {dpid: tiers.get(dpid, of_stem.get(_stem(name), LEAVES)) for dpid, name in names.items()}


def distances(neighbours: Mapping[Switch, set[Switch]], first: Iterable[Switch]) -> dict[Switch, int]:
    """Return the distance in cables from each switch to the nearest switch of ``first``.

    Switches that cannot be reached from ``first`` are left out."""
    found = dict.fromkeys(first, 0)
    for switch in (queue := list(found)):
        beyond = [each for each in neighbours.get(switch, ()) if each not in found]
        found |= dict.fromkeys(beyond, found[switch] + 1)
        queue += beyond
    return found


def _unused_ports(switch: pb.Switch, state: State) -> bool:
    return any(port.up and (switch.dpid, port.number) not in state.links for port in switch.ports)


def _stem(name: str) -> str:
    return re.sub(r"[\d_.-]+", "", name)


# ---- cables


def _cables(state: State, nodes: Mapping[int, Node]) -> list[Cable]:
    drained = {part.name for part in state.drains.values()}
    found = []
    for at, link in state.links.items():
        back = (link.dst.dpid, link.dst.port)
        if at[0] not in nodes or back[0] not in nodes:
            continue
        if link.one_way:
            found.append(_circuit(link, nodes, drained))
        elif back not in state.links or at < back:  # only once for the links of both directions
            found.append(_cable(state, nodes, at, back, drained))
    dpids = {node.name: node.dpid for node in nodes.values()}
    for part in state.parts_down.values():
        pair = _ends_of(part, dpids) if part.kind == pb.PART_KIND_LINK else None
        if pair and nodes.keys() >= set(pair):
            name, unique = short(part.name, NAME_CHARS), all(nodes[dpid].part == nodes[dpid].name for dpid in pair)
            called = name if unique and name == part.name else short(part.id, NAME_CHARS)
            found.append(Cable(name, called, _lower_first(pair, nodes), Condition.DOWN, None, None, None, None))
    return sorted(found, key=lambda cable: (cable.ends, natural(cable.name)))


def _ends_of(part: pb.DownPart, dpids: Mapping[str, int]) -> tuple[int, int] | None:
    """Return the dpids of the two switches of a cable that is down; None if they are unknown.

    The id of a cable has the dpids, unless the cable was never up and is only declared in the inventory file. For
    such a cable, the names of the switches are taken from the cable's name."""
    if ends := re.fullmatch(r"(0x[0-9a-f]{1,16}):\d+ (0x[0-9a-f]{1,16}):\d+", part.id):
        return int(ends[1], 16), int(ends[2], 16)
    ends = re.fullmatch(r"(.+):[^:>]+>(.+)", part.name) if len(part.name) <= MOST_CHARS else None
    return (dpids[ends[1]], dpids[ends[2]]) if ends and dpids.keys() >= {ends[1], ends[2]} else None


def _cable(state: State, nodes: Mapping[int, Node], at: LinkAt, back: LinkAt, drained: Collection[str]) -> Cable:
    """Return the cable for a picture.

    ``at``: where the cable's link in one direction begins. ``back``: where its link in the other direction begins."""
    first, second = state.links[at], state.links.get(back)
    names = {first.name} | ({second.name} if second else set())
    ends = _lower_first((at[0], back[0]), nodes)
    up, down = (at, back) if ends[0] == at[0] else (back, at)
    parts = {*names, _cable_id(at, back), *(name for dpid in ends for name in (nodes[dpid].name, f"{dpid:#x}"))}
    loads = {end: load(state.links[end]) if end in state.links else None for end in (up, down)}
    begin = back if second and back < at else at
    whole, switch = state.links[begin].name, nodes[begin[0]]
    name = short(whole, NAME_CHARS)
    return Cable(
        name,
        name if switch.part == switch.name and name == whole else f"{switch.part}:{begin[1]}",
        ends,
        Condition.UP if parts.isdisjoint(drained) else Condition.DRAINED,
        up if up in state.links else None,
        down if down in state.links else None,
        loads[up],
        loads[down],
    )


def _circuit(link: pb.Link, nodes: Mapping[int, Node], drained: Collection[str]) -> Cable:
    """Return the circuit for a picture; its name is that of its first port, so names are unique."""
    at, dst = (link.src.dpid, link.src.port), nodes[link.dst.dpid]
    src = nodes[at[0]]
    name = short(link.name, NAME_CHARS)
    unique = src.part == src.name and dst.part == dst.name and name == link.name
    servers = {name for node in (src, dst) for name in (node.name, f"{node.dpid:#x}")}
    return Cable(
        name,
        name if unique else f"{src.part}:{at[1]}>{dst.part}",
        (src.dpid, dst.dpid),
        Condition.UP if servers.isdisjoint(drained) else Condition.DRAINED,
        at,
        None,
        load(link),
        None,
        one_way=True,
    )


def _cable_id(a: LinkAt, b: LinkAt) -> str:
    """Return the id of a cable, as in ``DownPart.id``. Ids are unique; names of cables are not."""
    return " ".join(f"{dpid:#x}:{port}" for dpid, port in sorted((a, b)))


def _lower_first(ends: tuple[int, int], nodes: Mapping[int, Node]) -> tuple[int, int]:
    first, second = sorted(ends, key=lambda dpid: (nodes[dpid].tier, dpid))
    return first, second


SCALE = ("#00224e", "#434e6c", "#7d7c78", "#bcae6c", "#fee838")
"""Colours from load 0 to 1 in equal steps. The colours of loads in between are mixed linearly."""


@dataclass(frozen=True, slots=True)
class Paper:
    """Colours that depend on the background."""

    background: str
    text: str
    faint: str
    unknown: str
    """Colour of an unknown load."""
    down: str
    drained: str
    scale: tuple[str, ...]


LIGHT = Paper("#ffffff", "#1b1f24", "#6b7280", "#c4c8ce", "#c4320a", "#6d4aa2", SCALE[::-1])
DARK = Paper("#14171c", "#e6e8eb", "#9aa2ad", "#4a4f57", "#ff7a4d", "#b79be8", SCALE)
"""Palettes for light and dark backgrounds. An empty link is nearly as bright as the background, a full link is not."""


def colour(load: float | None, paper: Paper) -> str:
    """Return the colour of a load as ``#rrggbb``.

    Loads below 0 or above 1 have the colour of 0 or 1. None is an unknown load."""
    if load is None:
        return paper.unknown
    place = min(max(load, 0.0), 1.0) * (len(paper.scale) - 1)
    step = min(int(place), len(paper.scale) - 2)
    mixed = (
        round(int(low, 16) + (int(high, 16) - int(low, 16)) * (place - step))
        for low, high in zip(_parts(paper.scale[step]), _parts(paper.scale[step + 1]), strict=True)
    )
    return "#" + "".join(f"{each:02x}" for each in mixed)


def _parts(of: str) -> tuple[str, str, str]:
    return of[1:3], of[3:5], of[5:7]
