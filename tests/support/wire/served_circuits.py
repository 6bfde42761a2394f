"""Servers connected to optical switches, in memory, behind the real API server."""

from __future__ import annotations

from tests.support.optical_fabric import OpticalFabric
from tests.support.wire.served_fabric import ServedFabric


class ServedCircuits(OpticalFabric, ServedFabric):
    pass
