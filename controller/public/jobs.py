"""Registry that accepts or refuses announced jobs."""

from __future__ import annotations

from controller.jobs.messages import RegisterJob
from controller.jobs.registry import JobRegistry

__all__ = ("JobRegistry", "RegisterJob")
