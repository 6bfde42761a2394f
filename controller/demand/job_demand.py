"""Traffic that each job is planned with (``JobDemand``), and its difference from the announcement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from controller.fabric.counter_samples import Floats
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.subflows import Pair


class DemandSource(StrEnum):
    """Source of the bytes that a job is planned with."""

    DECLARED = "declared"
    """The spec, which counters have neither confirmed nor contradicted yet."""
    CONFIRMED = "confirmed"
    """The spec, which agrees with the counters."""
    MEASURED = "measured"
    """Counters, because they contradict the spec, or because the spec announces no traffic."""
    LEARNING = "learning"
    """No source yet: the traffic of the job is being learnt."""
    PROVISIONAL = "provisional"
    """Pairs with assumed amounts: counters or a provisional spec show which pairs send, but not how much."""

    @property
    def counted(self) -> bool:
        """Whether counters confirm the bytes."""
        return self in (DemandSource.CONFIRMED, DemandSource.MEASURED)


class Measurement(NamedTuple):
    """Measured payload of the pairs of a job."""

    pairs: tuple[Pair, ...]
    bps: Floats
    """Payload of each pair in bit/s over the window."""
    window_s: float
    """Length of the window in seconds."""
    iteration_s: float | None
    """Mean duration in seconds of the iterations reported in the window; None without such iterations."""
    undeclared_fraction: float = 0.0
    """Fraction of the payload on pairs, or in directions, that were not announced; 0 without payload."""


class Finding(StrEnum):
    """Way in which the counted traffic of a job differs from its spec."""

    SILENT = "silent"
    """The job has sent before, and none of its pairs carries payload now."""

    SLOWER = "slower"
    """The iteration in progress takes longer than the reported iterations."""

    OTHER_TRAFFIC = "other_traffic"
    """Pairs or directions that were not announced carry payload."""

    OTHER_AMOUNTS = "other_amounts"
    """Announced pairs carry other amounts than announced."""


CONTRADICTIONS = frozenset({Finding.OTHER_TRAFFIC, Finding.OTHER_AMOUNTS})


class Difference(NamedTuple):
    """Difference between the counted traffic of a job and its spec.

    A job that is only silent or slower does not contradict its announcement."""

    findings: tuple[Finding, ...]

    undeclared: tuple[tuple[Pair, float], ...] = ()
    """Pairs that were not announced, with their payload in bit/s."""

    off: tuple[tuple[Pair, float], ...] = ()
    """Announced pairs with other amounts, each with its ratio of counted to announced bytes.

    If ``relative`` is set, each ratio is divided by the median ratio."""

    backwards: bool = False
    """Whether every announced pair carries traffic in the reverse direction only."""

    factor: float | None = None
    """Ratio of counted to announced bytes, if all announced pairs share it."""

    relative: bool = False
    """Whether amounts are only compared with each other, because no iterations are reported."""

    @property
    def contradicts(self) -> bool:
        """Whether the difference shows that the announcement is wrong."""
        return not CONTRADICTIONS.isdisjoint(self.findings)


@dataclass(frozen=True, slots=True, eq=False)
class JobDemand:
    """Traffic that a job is planned with, and its measurement."""

    source: DemandSource
    virtual_links: VirtualLinks
    """Virtual links that the job is planned with."""
    declared: Mapping[Pair, int]
    """Announced bytes of one iteration, by pair."""
    per_iteration: bool = True
    """Whether ``virtual_links`` has the bytes of one iteration; if False, the bytes of one second."""
    counted: frozenset[Pair] = frozenset()
    """Pairs that are counted in addition to ``virtual_links``."""
    learning: bool = False
    """Whether ``counted`` has all pairs of the job's addresses."""
    silent: bool = False
    """Whether the connections that the job has reported carry nothing yet."""
    measurement: Measurement | None = None
    difference: Difference | None = None
    held: VirtualLinks | None = None
    """Measured virtual links that a controller plans with after a restart; None to plan with the links of the spec."""
    of_pattern: VirtualLinks | None = None
    """Virtual links of the current traffic pattern, a part of ``virtual_links``; None if there is only one pattern."""
    patterns: int = 0
    """Number of known traffic patterns."""
    pattern: int = 0
    """Number of the known pattern that the job sends now, from 1; 0 if the job sends no known pattern."""
    idle_phases: frozenset[int] = frozenset()
    """Phases of ``virtual_links`` in which the current pattern sends nothing; empty if the pattern may change soon."""

    @property
    def contradicted(self) -> bool:
        """Whether the counters contradict the announcement."""
        return self.difference is not None and self.difference.contradicts

    @property
    def pairs(self) -> frozenset[Pair]:
        """Pairs of source and destination address of the virtual links."""
        return self.virtual_links.pairs
