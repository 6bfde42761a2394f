"""Messages between the southbound's process and its parent, besides the packets of the link. Imports no framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controller.config import TlsFiles
from controller.fabric.topology import Dpid


@dataclass(frozen=True, slots=True)
class CannotListen:
    """The process ends, because it cannot listen."""

    why: str


@dataclass(frozen=True, slots=True)
class Alive:
    """The process is running."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Question about a switch, or the parent's answer, which is sent again whenever it has changed.

    The fields are as in ``Holding``."""

    dpid: Dpid
    since: float | None
    """Start of the connection; None for a question about the generation id only."""
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
