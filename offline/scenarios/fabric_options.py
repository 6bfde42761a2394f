"""Options that the offline commands share, as plain values. Every command imports this file, so it must load quickly.

``commands.scenario`` reads the options from a command line, ``scenario`` uses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from signalbox.errors import InvalidInput
from signalbox.jobs.spec import Striping
from signalbox.words import Objective

LEAST_GBPS, MOST_GBPS = 1e-6, 1e6
"""Limits of rates in Gbit/s.

A value outside these limits is a typing error. With values far outside, arithmetic overflows."""
LARGEST_SEED = 2**31 - 1
"""Largest seed. Every generator and solver accepts the seeds from 0 to ``LARGEST_SEED``."""


class WrongUsage(InvalidInput):
    """Error in the options of a command: options are missing, or exclude each other."""


class Placement(StrEnum):
    """Placement of the hosts of a replica.

    ``WHOLE_LEAF``: the replica fills leaves, emptiest first; only its last leaf may be shared. ``FRAGMENTED``: the
    hosts are drawn from the whole fabric."""

    WHOLE_LEAF = "whole-leaf"
    FRAGMENTED = "fragmented"


class FabricKind(StrEnum):
    """Kind of fabric for ``--fabric``; ``--graph`` replaces it."""

    LEAF_SPINE = "leaf-spine"
    FAT_TREE = "fat-tree"


_fabric_option = partial(typer.Option, rich_help_panel="Fabric")
failure_option = partial(typer.Option, rich_help_panel="Failures")


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricOptions:
    """Options that the offline commands share, in the order of their help.

    - ``workload``, ``jobs``: at least one of them is given.
    - ``graph``: a file (``graph_file``) with its own rates; it replaces ``fabric``.
    - ``link_gbps``: rate of NICs, and of fabric links unless ``uplink_gbps`` is given.
    - ``fail_spines``: numbers or names."""

    workload: Annotated[
        Path | None,
        typer.Option(help="Folder of workload files, one per job; --jobs may replace or complement it.", metavar="DIR"),
    ] = None
    jobs: Annotated[
        Path | None, typer.Option(help="File of job specs, or folder of such files.", metavar="FILE|DIR")
    ] = None
    fabric: Annotated[FabricKind, _fabric_option(help="Kind of fabric that the sizes describe.")] = (
        FabricKind.LEAF_SPINE
    )
    leaves: Annotated[int | None, _fabric_option(min=1, help="Leaf-spine: number of leaves.")] = None
    spines: Annotated[int | None, _fabric_option(min=1, help="Leaf-spine: number of spines.")] = None
    hosts_per_leaf: Annotated[int | None, _fabric_option(min=1, help="Leaf-spine: hosts on every leaf.")] = None
    cables: Annotated[int, _fabric_option(min=1, help="Leaf-spine: cables from every leaf to every spine.")] = 1
    k: Annotated[int | None, _fabric_option("--k", min=2, help="Fat-tree: k, the number of pods.")] = None
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
        failure_option(min=0, help="Number of further cables that fail, drawn at random (--seed)."),
    ] = 0
    max_subflows: Annotated[
        int, typer.Option(min=1, help="Largest number of subflows per flow of a workload; 1: whole flows.")
    ] = 1
    striping: Annotated[
        Striping, typer.Option(help="How a sender of a workload divides the bytes of a flow over its subflows.")
    ] = Striping.BY_SHARE
    objective: Annotated[
        Objective,
        typer.Option(help="Slowdown of a job with several phases: that of its iteration, or of its slowest phase."),
    ] = Objective.ITERATION
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="Random seed of failures, hashes and searches.")
    ] = 1
