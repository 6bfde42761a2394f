"""Sentences of ``Explain`` on a job that shares links in time or by class: what helps it, and what this costs whom.

In: the analysis of the job, and the slots and classes in force (``planning.plan.Sharing``), which have all figures.
Nothing is planned or computed anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from controller.api.convert_explain import count, listed
from controller.fabric.topology import Fabric
from controller.planning.analysis.messages import NOTICEABLE, JobAnalysis
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.plan import CommonLinks, Sharing
from controller.status import ExtensionStatus
from signalbox.jobs.spec import JobId

MOST_JOBS = 4
"""Largest number of jobs that a sentence names."""


def sharing_sentences(found: JobAnalysis, extension: ExtensionStatus, fabric: Fabric) -> tuple[str, ...]:
    """Return the sentences; none for a job on no link that jobs can overfill."""
    sharing, job_id, timing = extension.sharing, found.job_id, extension.timings.get(found.job_id)
    links = [common for common in sharing.links if job_id in common.jobs] if sharing else []
    if not sharing or not links:
        return ()
    reason = timing.reason if timing else "it reports no iterations"
    if job_id not in sharing.guaranteed_s:
        return (f"The plan of slots and classes assumes that job '{job_id}' sends at any time: {reason}.",)
    answer = _Answer(found, sharing, links)
    has_slot = any(job_id in circle.slots for circle in sharing.circles)
    return (
        answer.guaranteed(),
        answer.path(),
        *([] if has_slot or not reason else [f"It has no slot: {reason}."]),
        *answer.effect("Its slot" if has_slot else "", "slots", sharing.without_slots_s),
        *answer.effect(answer.class_in_words(), "classes", sharing.without_classes_s),
        *answer.alone(),
        *answer.crowded(fabric),
    )


class _Answer:
    """``links``: links of the job that jobs can overfill."""

    def __init__(self, found: JobAnalysis, sharing: Sharing, links: Sequence[CommonLinks]) -> None:
        self._found, self._sharing, self._links, self._id = found, sharing, links, found.job_id
        self._others = sorted({job for each in links for job in each.jobs} & sharing.guaranteed_s.keys() - {self._id})
        phases = sharing.timings[self._id].phases
        self._ideal_s = math.fsum(each.compute_s + each.ideal_s for each in phases)

    def guaranteed(self) -> str:
        most_s, promise_s = self._sharing.guaranteed_s[self._id], self._sharing.promise_s[self._id]
        without = f", and at most {_s(promise_s)} without slots and classes" if _differ(most_s, promise_s) else ""
        return (
            f"On its paths, an iteration of job '{self._id}' takes at most {_s(most_s)}, {most_s / self._ideal_s:.2f} "
            f"times as long as on an idle fabric{without}."
        )

    def path(self) -> str:
        hashed, slowdown = self._found.hashed_slowdown, self._found.slowdown
        if hashed is None:
            return "No flow of the job has a choice of paths."
        if hashed <= slowdown * (1 + SLOWDOWN_TOLERANCE):
            return "Its paths are no better than hashed ones."
        return f"Its paths help: if all jobs send at once, its slowdown is {slowdown:.2f}, and {hashed:.2f} if hashed."

    def class_in_words(self) -> str:
        """Return the name of the job's class; empty if all jobs on its links have the same class."""
        class_of = self._sharing.class_of
        own = class_of.get(self._id, 1)
        return f"Class {own}" if any(class_of.get(job, 1) != own for job in self._others) else ""

    def effect(self, own: str, every: str, without_s: Mapping[JobId, float]) -> Iterator[str]:
        """Yield what slots or classes (``every``) change: for the job, then for other jobs on its links.

        ``own``: the job's slot or class; empty for none. ``without_s``: times that are guaranteed without them."""
        with_s = self._sharing.guaranteed_s
        changed = [job for job in (self._id, *self._others) if _differ(with_s[job], without_s[job])]
        if self._id in changed:
            better = with_s[self._id] < without_s[self._id]
            what = f"{own} {'helps' if better else 'slows'}" if own else f"{every.capitalize()} slow"
            yield f"{what} it: without {every}, an iteration takes at most {_s(without_s[self._id])}."
        elif own:
            yield f"{own} does not change this time."
        for verb, sign in (("help", 1), ("slow", -1)):
            gains_s = {job: sign * (without_s[job] - with_s[job]) for job in changed if job != self._id}
            jobs = sorted((job for job in gains_s if gains_s[job] > 0), key=lambda job: -gains_s[job])
            words = [f"job '{job}' ({_s(with_s[job])} instead of {_s(without_s[job])})" for job in jobs]
            if words:
                yield f"{every.capitalize()} {verb} {_some(words)}."

    def alone(self) -> Iterator[str]:
        alone_s = self._sharing.alone_s[self._id]
        if alone_s > self._ideal_s * (1 + NOTICEABLE):
            text = f"Even if no other job sent, an iteration would take {_s(alone_s)}: its own flows overfill a link."
            if self._found.least_slowdown > 1 + SLOWDOWN_TOLERANCE:
                yield f"{text} No paths, slots or classes avoid this: only moving its ranks to other hosts would help."
            else:
                yield f"{text} Slots and classes cannot help there, but other paths could."

    def crowded(self, fabric: Fabric) -> Iterator[str]:
        """Yield why only moved ranks, or other paths, would help: jobs that send more than links carry."""
        leaves = [common for common in self._sharing.crowded if self._id in common.jobs]
        full = max(leaves or self._links, key=lambda common: common.average)
        if full.average > 1 + SLOWDOWN_TOLERANCE:
            where = _all_links(full, fabric) if leaves else fabric.link_name(full.links[0])
            way = "Only moving ranks to other leaves" if leaves else "Other paths, or ranks on other leaves,"
            jobs = _some([f"'{job}'" for job in full.jobs])
            yield (
                f"{'On any paths, jobs' if leaves else 'Jobs'} {jobs} send "
                f"{full.average:.2f} times what {where} can carry, even if they take turns. Slots and classes only "
                f"decide which of these jobs waits. {way} would help them all."
            )


def _all_links(common: CommonLinks, fabric: Fabric) -> str:
    """Return words for links that all leave one switch, or that all lead to one."""
    first, number = common.links[0], len(common.links)
    if number == 1:
        return fabric.link_name(first)
    if len({link.dpid for link in common.links}) == 1:
        return f"the {number} links out of {fabric.name(first.dpid)}"
    return f"the {number} links into {fabric.name(fabric.links[first].dst.dpid)}"


def _some(items: Sequence[str]) -> str:
    left = len(items) - MOST_JOBS
    return listed([*items[:MOST_JOBS], *([count(left, "more job", "more jobs")] if left > 0 else [])])


def _differ(one_s: float, other_s: float) -> bool:
    return not math.isclose(one_s, other_s, rel_tol=SLOWDOWN_TOLERANCE)


def _s(seconds: float) -> str:
    return f"{seconds:.4g} s"
