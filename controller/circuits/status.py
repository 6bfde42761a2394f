"""What others may see of optical switches. Frozen."""

from __future__ import annotations

from dataclasses import dataclass

from controller.fabric.topology import PortNo, PortRef
from controller.status import ExtensionSwitch


@dataclass(frozen=True, slots=True)
class FibreStatus:
    """A port of an optical switch, and the ``interface`` of a server there. ``up``: False while the optical switch is
    not connected. ``out_port``: by which leaves what comes in here, as it was read last; None where it leaves by none,
    and before that was read."""

    port: PortNo
    interface: PortRef
    up: bool
    out_port: PortNo | None


@dataclass(frozen=True, slots=True)
class OpticalStatus(ExtensionSwitch):
    """``fibres``: in the order of their ports."""

    fibres: tuple[FibreStatus, ...]
