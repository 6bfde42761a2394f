"""The phases of the controller, as a table, and what moves it from one to the next. Pure.

*Adopting*: after a start, what switches hold counts for more than what the controller knows, and nothing is deleted or
narrowed until every link that installed rules name has been seen, or no further switch has connected for
``adoption_patience_s``. Rules that lead to unknown hosts stay for one lease more
(docs/explanation/restart-and-repair.md). The same holds after a large part of the switches has left together: a switch
that dies takes its ports down, which its neighbours report at once, but a connection may also end because of the
control network, while packets still flow. So a switch is given up ``losses.GRACE_S`` after its connection ended, and
when many leave together none is given up.

*Steady*: rules follow from the fabric and the routes. After links were lost, first *removing next hops*, then
*repairing*: rules are not derived anew meanwhile, for ``HURRY_S`` at most.
"""

from __future__ import annotations

import math
from enum import Enum, auto

HURRY_S = 0.1
"""How long the full derivation of rules waits, at most, for the switches to confirm the removal of lost next hops, and
then for a repair of the routes."""


class Phase(Enum):
    ADOPTING = auto()
    STEADY = auto()
    REMOVING_NEXT_HOPS = auto()
    REPAIRING = auto()


class Input(Enum):
    """What moves the controller from phase to phase."""

    ADOPTION_NEEDED = auto()
    ADOPTED = auto()
    NEXT_HOPS_REMOVED = auto()
    REPAIR_ASKED = auto()
    REPAIR_ANSWERED = auto()
    ALL_CONFIRMED = auto()
    TIME_OVER = auto()


_A, _S, _N, _R = Phase.ADOPTING, Phase.STEADY, Phase.REMOVING_NEXT_HOPS, Phase.REPAIRING

NEXT: dict[tuple[Phase, Input], Phase] = {
    (_A, Input.ADOPTION_NEEDED): _A,
    (_A, Input.ADOPTED): _S,
    (_A, Input.NEXT_HOPS_REMOVED): _A,
    (_A, Input.REPAIR_ASKED): _A,
    (_A, Input.REPAIR_ANSWERED): _A,
    (_A, Input.ALL_CONFIRMED): _A,
    (_A, Input.TIME_OVER): _A,
    (_S, Input.ADOPTION_NEEDED): _A,
    (_S, Input.ADOPTED): _S,
    (_S, Input.NEXT_HOPS_REMOVED): _N,
    (_S, Input.REPAIR_ASKED): _R,
    (_S, Input.REPAIR_ANSWERED): _S,
    (_S, Input.ALL_CONFIRMED): _S,
    (_S, Input.TIME_OVER): _S,
    (_N, Input.ADOPTION_NEEDED): _A,
    (_N, Input.ADOPTED): _N,
    (_N, Input.NEXT_HOPS_REMOVED): _N,
    (_N, Input.REPAIR_ASKED): _R,
    (_N, Input.REPAIR_ANSWERED): _N,
    (_N, Input.ALL_CONFIRMED): _S,
    (_N, Input.TIME_OVER): _S,
    (_R, Input.ADOPTION_NEEDED): _A,
    (_R, Input.ADOPTED): _R,
    (_R, Input.NEXT_HOPS_REMOVED): _N,
    (_R, Input.REPAIR_ASKED): _R,
    (_R, Input.REPAIR_ANSWERED): _N,
    (_R, Input.ALL_CONFIRMED): _R,
    (_R, Input.TIME_OVER): _S,
}


class Phases:
    """Which phase the controller is in. ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self.phase = Phase.ADOPTING
        self._hurry_until = math.inf

    @property
    def adopting(self) -> bool:
        return self.phase is Phase.ADOPTING

    @property
    def urgent(self) -> bool:
        """Lost links are being answered: what can wait does."""
        return self.phase in (Phase.REMOVING_NEXT_HOPS, Phase.REPAIRING)

    def take(self, happened: Input, now: float) -> None:
        self.phase = NEXT[self.phase, happened]
        if happened in (Input.NEXT_HOPS_REMOVED, Input.REPAIR_ASKED):
            self._hurry_until = now + HURRY_S

    def pass_time(self, now: float) -> None:
        """Ends what has lasted for ``HURRY_S``."""
        if self.urgent and now >= self._hurry_until:
            self.take(Input.TIME_OVER, now)
