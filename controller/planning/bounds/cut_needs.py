"""What the cuts of a fabric ask of the jobs' levels: inequalities that every routing keeps to.

Say every job j stays at or below a level t_j. Then no link is loaded beyond the least t_j of the jobs on it, and the
shares f(s, t_j) that its flows (of load s) have of it add up to at most 1, where f does not grow with t and is one of

- fluid: s / t, with the largest phase of each job;
- count: 1 / floor(t / s0) for s >= s0, else 0: so many flows of at least s0 fit on a link;
- volume: s / t for s >= s0, else 0.

In the last two a flow that leaves no room for another of s0 (s > t - s0) has a whole link (a dual feasible function of
bin packing: Fekete and Schepers, "New classes of fast lower bounds for bin packing problems", 2001). Summed over the m
links of a cut the shares are at most m. Where all demands are multiples of one unit, t is rounded down to what they can
add up to.

In: a problem's ``Bounds``. Out: the needs that not all jobs can meet at their own bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from controller.planning.bounds.level_bounds import Bounds, Cuts
from controller.planning.efficiency import Floats

_ROUNDING = 1e-9
_SMALL = 0.5
"""Cuts less full than this at the jobs' own bounds are no matter: no share is more than twice s / t."""
_MOST_STEPS = 64


@dataclass(frozen=True, slots=True)
class Need:
    """``amounts``: per load and job the flows across a cut / its links. ``loads``: what one flow puts on a link,
    descending; the last one is s0. For the fluid there is one amount, the job's load, and no ``loads``. ``step``: what
    the load of a link is a multiple of, 0 when there is nothing."""

    amounts: tuple[tuple[float, ...], ...]
    loads: tuple[float, ...]
    by_volume: bool
    step: float

    def of(self, level: float) -> Floats:
        """Per job the share of the cut that it needs when it stays at or below ``level``. All together get 1."""
        shares: Floats = np.array(self._shares(level)) @ np.array(self.amounts)
        return shares

    def _shares(self, level: float) -> list[float]:
        if self.step:
            level = max(1, int(level / self.step * (1 + _ROUNDING))) * self.step
        if not self.loads:
            return [1 / level]
        least = self.loads[-1]
        fit = max(1, int(level / least * (1 + _ROUNDING)))
        return [
            1.0 if fit == 1 or self._alone(load, level) else load / level if self.by_volume else 1 / fit
            for load in self.loads
        ]

    def after(self, level: float) -> float:
        """The next level at which all jobs together may need less than is there, as they do not at this one."""
        if self.step:
            return (int(level / self.step * (1 + _ROUNDING)) + 1) * self.step
        if not self.loads:
            return float(np.sum(self.amounts))
        least = self.loads[-1]
        steps = [(int(level / least * (1 + _ROUNDING)) + 1) * least, *(load + least for load in self.loads)]
        following = min(step for step in steps if step > level * (1 + _ROUNDING))
        if not self.by_volume or level < 2 * least:
            return following
        own = [sum(row) for row in self.amounts]
        large = sum(row for row, load in zip(own, self.loads, strict=True) if self._alone(load, level))
        rest = sum(row * load for row, load in zip(own, self.loads, strict=True) if not self._alone(load, level))
        return min(following, rest / (1 - large)) if large < 1 else following

    def _alone(self, load: float, level: float) -> bool:
        """Whether a flow of this load leaves no room for another."""
        return load > (level - self.loads[-1]) * (1 + _ROUNDING)

    def changes(self, highest: float) -> Iterator[float]:
        """Levels at which ``of`` changes, up to ``highest``; where they are dense only the highest of them."""
        step = self.step or (self.loads[-1] if self.loads else 0.0)
        if step:
            most = int(highest / step * (1 + _ROUNDING))
            yield from (step * times for times in range(max(1, most - _MOST_STEPS), most + 1))
        if not self.step:
            yield from (load + self.loads[-1] for load in self.loads)


def contested(bounds: Bounds) -> list[Need]:
    """The needs that leave somebody above his own bound."""
    floors = np.array(list(bounds.job.values()))
    column = [bounds.cuts.job_ids.index(job) for job in bounds.job]
    needs = dict.fromkeys([*_fluid(bounds.cuts, column, floors), *_packed(bounds.cuts, column, floors)])
    return [need for need in needs if _asked(need, floors) > 1 + _ROUNDING]


def least_worst(needs: Sequence[Need], worst: float) -> float:
    """A lower bound of the level that meets all needs when all jobs have it: the first one from ``worst`` on, unless
    there are too many steps on the way."""
    level = worst
    for _ in range(_MOST_STEPS):
        following = [need.after(level) for need in needs if need.of(level).sum() > 1 + _ROUNDING]
        if not following:
            break
        level = max(following)
    return level


def _asked(need: Need, floors: Floats) -> float:
    """What all jobs need together at their own bounds."""
    return float(sum(need.of(floor)[floors == floor].sum() for floor in np.unique(floors).tolist()))


def _fluid(cuts: Cuts, column: Sequence[int], floors: Floats) -> Iterator[Need]:
    loads, steps = cuts.loads()[:, column], cuts.steps()
    for cut in np.flatnonzero((loads / floors).sum(axis=1) > _SMALL).tolist():
        yield Need((tuple(loads[cut].tolist()),), (), by_volume=True, step=float(steps[cut]))


def _packed(cuts: Cuts, column: Sequence[int], floors: Floats) -> Iterator[Need]:
    sizes, counts = [], []
    for size, at_least in cuts.whole_flows():
        sizes.append(size)
        counts.append(at_least[:, column])
    if not sizes:
        return
    exactly = np.diff(np.array(counts), axis=0, prepend=0)
    steps = cuts.steps()
    full = (cuts.loads()[:, column] / floors).sum(axis=1) > _SMALL
    for cut in np.flatnonzero(full & np.isfinite(cuts.capacity_bps)).tolist():
        present = np.flatnonzero(exactly[:, cut].any(axis=1)).tolist()
        loads = tuple(sizes[number] / float(cuts.capacity_bps[cut]) for number in present)
        amounts = tuple(tuple(row) for row in (exactly[present, cut] / cuts.links[cut]).tolist())
        for end in range(1, len(present) + 1):
            for by_volume in (False, True):
                yield Need(amounts[:end], loads[:end], by_volume, float(steps[cut]))
