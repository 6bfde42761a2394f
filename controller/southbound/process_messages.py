"""Messages between the southbound's process and its parent, except the packets of the link. Imports no framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controller.config import TlsFiles
from controller.fabric.topology import Dpid


@dataclass(frozen=True, slots=True)
class CannotListen:
    """The process ends, because it cannot listen at its address."""

    why: str


@dataclass(frozen=True, slots=True)
class Alive:
    """Sign that the process is running."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Question about a switch to the parent, or the parent's answer. The fields are as in ``Holding``.

    The parent sends a new answer whenever the answer has changed."""

    dpid: Dpid
    since: float | None
    """Start of the switch's connection; None for a question that is only about the generation id."""
    generation: int | None = None
    may_claim: bool = False


@dataclass(frozen=True, slots=True)
class Broken:
    """The link to the control loop is broken."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the connections of all switches, and the process."""


@dataclass(frozen=True, slots=True)
class NewFiles:
    """Configure logging, and use these certificates for new connections."""

    logging: Callable[[], object]
    tls: TlsFiles | None
