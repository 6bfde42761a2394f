"""Cabling in the form of Slurm's plugin topology/tree: each switch with its nodes, or with the switches below it.

``tree`` makes a tree of switches, cables and nodes; ``topology_conf`` writes it as topology.conf(5). The format has
only trees, so switches with the same connections are merged: all spines of a leaf-spine fabric become one switch, and
so do the upper switches of each pod of a fat-tree. A fabric of circuits is refused."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from signalbox.errors import SignalboxError

Switch = TypeVar("Switch", int, str)


class NoTree(SignalboxError):
    """The fabric cannot be described as a tree."""


def refuse_circuits(circuits: Sequence[str]) -> None:
    """Raise ``NoTree`` when the fabric has circuits; ``circuits`` are the names of one-way links.

    Circuits are connected anew for each job, so the distances between nodes change."""
    if circuits:
        raise NoTree(
            f"the fabric has {len(circuits)} circuits of optical switches (such as {circuits[0]}): it is not a tree, "
            "and it changes with its jobs. Let Slurm choose nodes without a topology.conf"
        )


class TreeSwitch(NamedTuple):
    """A switch of the tree, with ``nodes`` or with ``switches`` below it."""

    name: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]


def tree(cables: Iterable[tuple[str, str]], nodes: Mapping[str, Sequence[str]]) -> list[TreeSwitch]:
    """Return the switches of the tree.

    ``cables``: pairs of switch names. ``nodes``: nodes of each switch that has some; such a switch is a leaf. A switch
    is in tier k when its nearest leaf is k cables away. For each k, the tree has one switch above each set of leaves
    that are connected through switches of tiers up to k."""
    neighbours: defaultdict[str, set[str]] = defaultdict(set)
    for one, other in cables:
        neighbours[one].add(other)
        neighbours[other].add(one)
    leaves = sorted((leaf for leaf in nodes if nodes[leaf]), key=_naturally)
    found = [TreeSwitch(leaf, tuple(sorted(nodes[leaf], key=_naturally)), ()) for leaf in leaves]
    tops = {leaf: leaf for leaf in leaves}  # topmost switch above each leaf so far
    tier_of = distances(neighbours, leaves)
    for tier in range(max(tier_of.values(), default=0) + 1):
        number = 0
        for part in _parts(neighbours, leaves, {switch for switch, its in tier_of.items() if its <= tier}):
            below = list(dict.fromkeys(tops[leaf] for leaf in part))
            if len(below) > 1:
                number += 1
                name = f"tier{tier}-{number}"
                while name in neighbours:
                    name += "-"
                found.append(TreeSwitch(name, (), tuple(below)))
                tops |= dict.fromkeys(part, name)
    return found


def distances(neighbours: Mapping[Switch, set[Switch]], first: Iterable[Switch]) -> dict[Switch, int]:
    """Return the distance in cables from each switch to the nearest of ``first``, without unreachable switches."""
    found = dict.fromkeys(first, 0)
    for switch in (queue := list(found)):
        beyond = [each for each in neighbours.get(switch, ()) if each not in found]
        found |= dict.fromkeys(beyond, found[switch] + 1)
        queue += beyond
    return found


def _parts(neighbours: Mapping[str, set[str]], leaves: Iterable[str], among: set[str]) -> Iterator[list[str]]:
    """Yield the sets of leaves connected through the switches in ``among``, ordered by the first leaf of each set."""
    left = dict.fromkeys(leaves)
    while left:
        reached = {next(iter(left))}
        last = list(reached)
        while last:
            last = list({n for switch in last for n in neighbours.get(switch, ()) if n in among} - reached)
            reached |= set(last)
        part = [leaf for leaf in left if leaf in reached]
        yield part
        for leaf in part:
            del left[leaf]


def topology_conf(switches: Iterable[TreeSwitch]) -> str:
    """Return the text of a file topology.conf(5).

    Characters that Slurm refuses in a name become underscores; names stay distinct."""
    switches = [*switches]
    called: dict[str, str] = {}
    for switch in switches:
        name = re.sub(r"[^\w.-]", "_", switch.name)
        while name in called.values():
            name += "-"
        called[switch.name] = name
    below = [
        f"Nodes={','.join(switch.nodes)}"
        if switch.nodes
        else f"Switches={','.join(called[name] for name in switch.switches)}"
        for switch in switches
    ]
    return "".join(f"SwitchName={called[switch.name]} {its}\n" for switch, its in zip(switches, below, strict=True))


def _naturally(text: str) -> list[tuple[int, str]]:
    """Return a sort key that puts n2 before n10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]
