"""Jobs in time on shared links: cases, choices, and the times that they guarantee."""

from __future__ import annotations

from controller.planning.contention.fluid import Case, Choice, Choices, Phase, TimedJob, guaranteed_s

__all__ = ("Case", "Choice", "Choices", "Phase", "TimedJob", "guaranteed_s")
