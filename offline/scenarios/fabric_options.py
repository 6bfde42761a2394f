"""The options that the offline commands share: plain values, in a file that imports quickly because every command
reads it.

Each is declared once, with its help. ``commands.scenario`` takes them from a command line, ``scenario`` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from signalbox.errors import InvalidInput
from signalbox.jobs.spec import Dealing

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


_fabric_option = partial(typer.Option, rich_help_panel="Fabric")
failure_option = partial(typer.Option, rich_help_panel="Failures")


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricOptions:
    """The options that the offline commands share, in the order of their help.

    ``graph`` is a file (see ``graph_file``) with its own rates; it takes the place of ``fabric``. ``link_gbps``: of
    NICs, and of fabric links unless ``uplink_gbps`` is given. ``fail_spines``: numbers or names.
    """

    workload: Annotated[Path, typer.Option(help="Folder of workload files, one per job.", metavar="DIR")]
    fabric: Annotated[FabricKind, _fabric_option(help="What the other numbers describe.")] = FabricKind.LEAF_SPINE
    leaves: Annotated[int | None, _fabric_option(min=1, help="Leaf-spine: leaves.")] = None
    spines: Annotated[int | None, _fabric_option(min=1, help="Leaf-spine: spines.")] = None
    hosts_per_leaf: Annotated[int | None, _fabric_option(min=1, help="Leaf-spine: hosts on every leaf.")] = None
    cables: Annotated[int, _fabric_option(min=1, help="Leaf-spine: cables from every leaf to every spine.")] = 1
    k: Annotated[int | None, _fabric_option("--k", min=2, help="Fat-tree: k.")] = None
    graph: Annotated[
        Path | None,
        _fabric_option(help="Any fabric: networkx node-link JSON with capacities.", metavar="FILE"),
    ] = None
    link_gbps: Annotated[float, _fabric_option(help="Gbit/s of every NIC and link, each way.")] = 100.0
    uplink_gbps: Annotated[
        float | None,
        _fabric_option(help="Gbit/s of the links between switches.", show_default="as NICs"),
    ] = None
    fail_spines: Annotated[str, failure_option(metavar="3,7", help="Spines (or cores) that have failed.")] = ""
    fail_links: Annotated[
        str,
        failure_option(
            metavar="leaf5:spine2,…",
            help="Cables that have failed: all between two switches, or one as leaf5:spine2:0.",
        ),
    ] = ""
    fail_random_links: Annotated[
        int,
        failure_option(min=0, help="Number of further cables that fail, at random (--seed)."),
    ] = 0
    max_subflows: Annotated[
        int, typer.Option(min=1, help="Into how many pieces a flow may be split; 1 keeps it whole.")
    ] = 1
    dealing: Annotated[Dealing, typer.Option(help="How a sender divides the bytes of a flow over its pieces.")] = (
        Dealing.BY_SHARE
    )
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="Random seed of failures, hashes and searches.")
    ] = 1
