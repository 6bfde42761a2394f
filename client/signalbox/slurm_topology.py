"""The cabling as Slurm's plugin topology/tree wants it: each switch with its nodes, or with the switches below it.

In: switches, cables and nodes. Out: a tree, and topology.conf (topology.conf(5)). Switches that connect the same ones
are merged, since only a tree can be described: all spines of a leaf-spine fabric are one, and so are the upper switches
of each pod of a fat-tree. A fabric of circuits is refused. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from signalbox.errors import SignalboxError

Switch = TypeVar("Switch", int, str)


class NoTree(SignalboxError):
    """What cannot be described."""


def refuse_circuits(circuits: Sequence[str]) -> None:
    """``circuits``: names of links that lead one way. Raises ``NoTree`` when there are any: they are connected anew
    for each job, so that no node is near another one for long."""
    if circuits:
        raise NoTree(
            f"the fabric has {len(circuits)} circuits of optical switches (such as {circuits[0]}): it is no tree, and "
            "changes with its jobs. Let Slurm choose nodes without a topology.conf"
        )


class TreeSwitch(NamedTuple):
    """With ``nodes``, or with ``switches`` below it."""

    name: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]


def tree(cables: Iterable[tuple[str, str]], nodes: Mapping[str, Sequence[str]]) -> list[TreeSwitch]:
    """``cables``: names of two switches each. ``nodes``: of each switch that has some. A switch is in tier k when its
    nearest switch with nodes is k cables away. In the tree, what is connected by tiers up to k is below one switch."""
    neighbours: defaultdict[str, set[str]] = defaultdict(set)
    for one, other in cables:
        neighbours[one].add(other)
        neighbours[other].add(one)
    leaves = sorted((leaf for leaf in nodes if nodes[leaf]), key=_naturally)
    found = [TreeSwitch(leaf, tuple(sorted(nodes[leaf], key=_naturally)), ()) for leaf in leaves]
    tops = {leaf: leaf for leaf in leaves}  # of each leaf the switch of the tree that is above it so far
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
    """Return how far each switch is from the nearest of the first ones, in cables; without those that no cables
    reach."""
    found = dict.fromkeys(first, 0)
    for switch in (queue := list(found)):
        beyond = [each for each in neighbours.get(switch, ()) if each not in found]
        found |= dict.fromkeys(beyond, found[switch] + 1)
        queue += beyond
    return found


def _parts(neighbours: Mapping[str, set[str]], leaves: Iterable[str], among: set[str]) -> Iterator[list[str]]:
    """The leaves that these switches connect, in the order of the first of each part."""
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
    """The file's text. What Slurm does not take in a name becomes an underscore; names stay unlike."""
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
    """n2 comes before n10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]
