"""Simulated annealing over destinations, as the authors of arXiv 2503.05324 ran it.

The scheme is that of Hedera (Al-Fares et al., "Hedera: Dynamic Flow Scheduling for Data Center Networks", NSDI 2010,
section 4.2). In: ``PathChoices``. Out: the links that each flow takes, shape (hops, flows), in the link numbers of
``NextHops``.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict

import numpy as np

from controller.public.plans import PathChoices
from controller.public.problems import Dpid, Ints, LinkId

_HOTTEST = 1000.0
_COLDEST = 0.1
_COOLING = 0.99
"""Factor of the temperature per step, from ``_HOTTEST`` down to ``_COLDEST``."""
_EQUAL = 1e-9
"""Largest difference of two loads, relative to the largest load, at which links count as equally loaded."""


def anneal(choices: PathChoices, seed: int) -> Ints:
    """Return the links of each flow after simulated annealing.

    The state is one spine per destination host: all flows to this host use this spine. At first, host k of each leaf
    has spine k, modulo the number of spines. A step swaps the spines of two hosts; half of the steps choose both hosts
    from one leaf. A state of lower energy is always accepted, any other state with probability exp(-difference / T). T
    starts at 1000 and is multiplied by 0.99 until it is 0.1. The last state is the answer.

    The energy is the sum of the loads of the most loaded links. The load of a link is the sum of its flows' largest
    demands / capacity. For equal flows that each fill a link the load is the number of flows, as published. On fabrics
    that are no leaf-spine, a path number, modulo the number of the flow's paths, replaces the spine."""
    state = _State(choices)
    chance = random.Random(seed)
    crowded = [hosts for hosts in state.hosts_of_leaf.values() if len(hosts) > 1]
    everywhere = list(range(len(state.spine)))
    energy = state.energy()
    temperature = _HOTTEST
    while temperature > _COLDEST and len(everywhere) > 1:
        among = chance.choice(crowded) if crowded and chance.random() < 0.5 else everywhere
        one, other = chance.sample(among, 2)
        state.swap(one, other)
        changed = state.energy()
        if changed < energy or math.exp((energy - changed) / temperature) > chance.random():
            energy = changed
        else:
            state.swap(one, other)
        temperature *= _COOLING
    return state.taken


class _State:
    """State of the search: the spine of each destination host, and the links and loads that follow from it."""

    def __init__(self, choices: PathChoices) -> None:
        self._options = choices.options
        self._bps = choices.peak_bps
        self._capacity_bps = choices.next_hops.capacity_bps
        self._load = np.zeros(len(self._capacity_bps))
        self.taken = choices.no_links()
        flows_to: defaultdict[LinkId, list[int]] = defaultdict(list)
        for number, flow in enumerate(choices.flows):
            flows_to[flow.nic_links[1]].append(number)
        self.hosts_of_leaf: defaultdict[Dpid, list[int]] = defaultdict(list)
        self.spine: list[int] = []
        self._flows_to: list[list[int]] = []
        for host, nic in enumerate(sorted(flows_to)):
            self._flows_to.append(flows_to[nic])
            self.spine.append(len(self.hosts_of_leaf[nic.dpid]))
            self.hosts_of_leaf[nic.dpid].append(host)
            self._put(host)

    def swap(self, one: int, other: int) -> None:
        for host in (one, other):
            for flow in self._flows_to[host]:
                self._add(flow, -1)
        self.spine[one], self.spine[other] = self.spine[other], self.spine[one]
        self._put(one)
        self._put(other)

    def energy(self) -> float:
        """Return the sum of the loads of the most loaded links."""
        most = self._load.max()
        return float(self._load[self._load >= most * (1 - _EQUAL)].sum())

    def _put(self, host: int) -> None:
        for flow in self._flows_to[host]:
            options = self._options[flow]
            self.taken[:, flow] = options[:, self.spine[host] % options.shape[1]]
            self._add(flow, 1)

    def _add(self, flow: int, times: int) -> None:
        links = self.taken[:, flow]
        self._load[links] += times * self._bps[flow] / self._capacity_bps[links]
