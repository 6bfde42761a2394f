"""The options that the offline commands share, as plain values, in a file that imports quickly: every command reads it.

``scenario`` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from controller.errors import InvalidInput

LEAST_GBPS, MOST_GBPS = 1e-6, 1e6
"""Limits of rates: beyond them the exponent is mistyped, and far beyond them arithmetic overflows."""
LARGEST_SEED = 2**31 - 1
"""Every generator and solver accepts seeds from 0 to this."""


class WrongUsage(InvalidInput):
    """Options that do not go together, or that are missing."""


class Placement(StrEnum):
    """``whole-leaf``: a replica fills leaves, the emptiest first, and only its last one in part. ``fragmented``: a
    replica's hosts are anywhere."""

    WHOLE_LEAF = "whole-leaf"
    FRAGMENTED = "fragmented"


class FabricKind(StrEnum):
    """What ``--fabric`` may be; ``--graph`` takes its place."""

    LEAF_SPINE = "leaf-spine"
    FAT_TREE = "fat-tree"


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricOptions:
    """The options that the offline commands share.

    ``leaves``, ``spines``, ``hosts_per_leaf``, ``cables`` are for a leaf-spine, ``k`` for a fat-tree, ``graph`` is a
    file (see ``graph_file``) and has rates of its own. ``link_gbps``: of NICs, and of fabric links unless
    ``uplink_gbps`` is given. ``fail_spines``: numbers or names; ``fail_links``: ``leaf5:spine2`` or ``leaf5:spine2:0``;
    ``fail_random_links``: so many of the cables that are left, drawn with ``seed``. ``max_subflows``: pieces that a
    flow may be cut into.
    """

    workload: Path
    fabric: FabricKind = FabricKind.LEAF_SPINE
    leaves: int | None = None
    spines: int | None = None
    hosts_per_leaf: int | None = None
    cables: int = 1
    k: int | None = None
    graph: Path | None = None
    link_gbps: float = 100.0
    uplink_gbps: float | None = None
    fail_spines: tuple[str, ...] = ()
    fail_links: tuple[str, ...] = ()
    fail_random_links: int = 0
    max_subflows: int = 1
    seed: int = 1
