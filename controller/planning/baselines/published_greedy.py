"""The greedy of "Routing for Large ML Models" (arXiv 2503.05324), as published: flows are counted, not weighed.

The flows out of a leaf are a set, and the flows into it are another. The sets are taken from the largest to the
smallest, the flows of each in their order; every flow goes where the larger of the loads on its way, up and down, is
smallest, to the lowest spine on ties. Nothing is known of the running routes. On any fabric a path takes the spine's
place, and the largest load on its links that of the two.

In: ``PathChoices``. Out: the links that each flow takes. On an unbroken leaf-spine at most twice as many flows share a
link as must.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from controller.fabric.topology import Dpid
from controller.planning.baselines.path_choices import PathChoices
from controller.planning.efficiency import Ints
from controller.planning.problem import Flow


def published_greedy(choices: PathChoices) -> Ints:
    """Shape (hops, flows), link numbers."""
    taken = np.full((choices.next_hops.longest, len(choices.flows)), choices.next_hops.nothing)
    load = np.zeros(choices.next_hops.nothing + 1)
    load[-1] = -np.inf
    for flow in largest_set_first(choices.flows):
        hops = choices.options[flow]
        largest = load[hops[0]]
        for links in hops[1:]:
            np.maximum(largest, load[links], out=largest)
        path = hops[:, largest.argmin()]
        for link in path.tolist():
            load[link] += 1
        taken[:, flow] = path
    return taken


def largest_set_first(flows: Sequence[Flow]) -> list[int]:
    """The numbers of the flows, in the order in which the greedy takes them. Of sets of one size those out of a leaf
    come first, then the lower leaf."""
    sets: defaultdict[tuple[bool, Dpid], list[int]] = defaultdict(list)
    for number, flow in enumerate(flows):
        sets[False, flow.src_leaf].append(number)
        sets[True, flow.dst_leaf].append(number)
    order = sorted(sets, key=lambda key: (-len(sets[key]), key))
    return list(dict.fromkeys(number for key in order for number in sets[key]))
