"""CASSINI's headline on comparable mixes: iterations are 1.6 times shorter in the mean, 2.5 times in the tail.

Source: Rajasekaran et al., "CASSINI: network-aware job scheduling in machine learning clusters", NSDI 2024. Two to four
of its 13 models share a link of 50 Gbit/s, the rate of a NIC of its testbed. The bytes of a model are the sizes that
the paper lists (the smallest of a range). Three workers reduce them in a ring: VGG16 then communicates for 113 ms; the
paper's example has 114 ms in an iteration of 255 ms. The paper tunes batch sizes; here they make iterations equally
long, or half or twice as long, so that each job sends between 10 % and 55 % of the time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

from benchmarks.measures import Row
from controller.planning.contention.fluid import Case, Objective, Phase, TimedJob
from offline.scenarios.variation import Variation
from offline.simulator.baselines import cassini, ours, today
from offline.simulator.contention import Figures, SharedPlan, simulated
from signalbox.jobs.spec import JobId

MEGABYTES = {
    "VGG11": 507, "VGG16": 528, "VGG19": 549, "ResNet50": 98, "WideResNet101": 243, "BERT": 450, "RoBERTa": 800,
    "CamemBERT": 266, "XLM": 1116, "GPT-1": 650, "GPT-2": 1623, "GPT-3": 1952, "DLRM": 890,
}  # fmt: skip
LINK_BPS = 50e9
WORKERS = 3
DUTY = (0.1, 0.55)
PUBLISHED = {"mean": 1.6, "tail": 2.5}
JITTER = 0.01
ITERATIONS = 100
STARTS = 5
"""Number of simulations of a mix, with different starts."""


def mix(seed: int) -> Case:
    """Return a random mix of jobs on one link."""
    chance = random.Random(seed)
    period_s, count = chance.uniform(0.2, 0.6), chance.choice((2, 3, 4))
    jobs: list[TimedJob] = []
    for name in chance.sample(sorted(MEGABYTES), len(MEGABYTES)):
        ideal_s = 2 * (WORKERS - 1) / WORKERS * MEGABYTES[name] * 8e6 / LINK_BPS
        fitting = [each for each in (0.5, 1.0, 2.0) if DUTY[0] <= ideal_s / (each * period_s) <= DUTY[1]]
        if fitting and len(jobs) < count:
            own_s = period_s * chance.choice(fitting)
            jobs.append(TimedJob(JobId(name), (Phase(own_s - ideal_s, ideal_s),), (({0: LINK_BPS},),), own_s))
    return Case((LINK_BPS,), tuple(jobs))


def run(seed: int) -> Row:
    """Return how many times shorter iterations are with shifts than without, in the mean and in the tail.

    Without shifts, jobs start at random times, or all at once."""
    case = mix(seed)
    at_random = today(case)
    at_once = SharedPlan({number: choice._replace(start_s=0.0) for number, choice in at_random.choices.items()})
    starts = {"random": _figures(case, at_random), "at once": _figures(case, at_once)}
    shifts = {"cassini": _figures(case, cassini(case)), "ours": _figures(case, ours(case, Objective.WORST, 1))}
    gains = {
        f"{name}, {start}": {of: without[of] / found[of] for of in PUBLISHED}
        for name, found in shifts.items()
        for start, without in starts.items()
    }
    duty = sum(job.sending_s / job.ideal_s for job in case.jobs)
    return {"seed": seed, "jobs": [job.id for job in case.jobs], "duty": duty, "shifts": shifts, "gains": gains}


def _figures(case: Case, plan: SharedPlan) -> dict[str, float]:
    vary = [Variation(JITTER)] * len(case.jobs)
    found = [Figures.of(case, simulated(case, plan, ITERATIONS, vary, seed)) for seed in range(STARTS)]
    return {"mean": fmean(each.mean for each in found), "tail": fmean(each.tail for each in found)}


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return the largest and the median gains, for all mixes and for mixes that send no more than the link carries."""
    found: list[Row] = []
    for mixes, chosen in (("all", rows), ("duty <= 1", [row for row in rows if row["duty"] <= 1])):
        for name in rows[0]["gains"] if chosen else ():
            gains = {of: [row["gains"][name][of] for row in chosen] for of in PUBLISHED}
            figures = {f"{of}, {how}": call(gains[of]) for of in PUBLISHED for how, call in HOW.items()}
            found.append({"mixes": f"{mixes} ({len(chosen)})", "shifts, starts": name, **figures})
    return found


HOW: Mapping[str, Callable[[Sequence[float]], float]] = {"largest": max, "median": median}
