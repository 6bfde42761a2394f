"""Published state of optical switches. Immutable."""

from __future__ import annotations

from dataclasses import dataclass

from controller.fabric.topology import PortNo, PortRef
from controller.status import ExtensionSwitch


@dataclass(frozen=True, slots=True)
class FibreStatus:
    """Port of an optical switch that leads to a server."""

    port: PortNo
    interface: PortRef
    """Interface of the server at the port."""
    up: bool
    """True while the port is up and the optical switch is connected."""
    out_port: PortNo | None
    """Port by which the incoming light leaves, as last read; None before the first reading or without cross-connect."""


@dataclass(frozen=True, slots=True)
class OpticalStatus(ExtensionSwitch):
    """State of one optical switch."""

    fibres: tuple[FibreStatus, ...]
    """Ports that lead to servers, ordered by port number."""
