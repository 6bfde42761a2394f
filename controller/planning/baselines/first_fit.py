"""Global first fit (Al-Fares et al., "Hedera", NSDI 2010, section 4.1).

Flow after flow, the paths are searched in order for the first on which every link still has room for the flow's demand;
there the demand is reserved. A flow that fits nowhere is not placed: it stays where hashing puts it, and nothing is
reserved for it.

In: ``PathChoices``, and the links that hashing gives each flow. Out: the links that each flow takes. Hedera knows no
phases: a flow's demand is its largest.
"""

from __future__ import annotations

import numpy as np

from controller.planning.baselines.path_choices import PathChoices
from controller.planning.efficiency import Ints

_ROUNDING = 1e-9
"""Of a link's capacity: flows that fill it exactly fit."""


def first_fit(choices: PathChoices, hashed: Ints) -> Ints:
    """Shapes (hops, flows), link numbers."""
    taken = hashed.copy()
    room_bps = choices.next_hops.capacity_bps * (1 + _ROUNDING)
    for number, (bps, hops) in enumerate(zip(choices.peak_bps, choices.options, strict=True)):
        least = room_bps[hops[0]]
        for links in hops[1:]:
            np.minimum(least, room_bps[links], out=least)
        fits = least >= bps
        first = fits.argmax()
        if fits[first]:
            path = hops[:, first]
            for link in path.tolist():
                room_bps[link] -= bps
            taken[:, number] = path
    return taken
