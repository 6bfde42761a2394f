"""Scenario swap: two jobs exchange their hosts by one request, while the programs on the hosts continue.

Three rings, each with one host per leaf, train. Halfway, each of two jobs is announced on the hosts of the other. From
then on the iterations of a program are reported as those of the other job. Nothing may change on the network: no path,
no iteration time, no additional lost segment.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from benchmarks.joining.mixes import Announced, Mode, spec_of
from benchmarks.joining.scenarios.elephants import layout
from benchmarks.joining.scenarios.rows import Found, Row, Target, by_mode, with_flat_s, worst
from benchmarks.joining.scenarios.stage import Look, Stage
from mininet_topos.joining.jobs import LibraryJob
from mininet_topos.lab.record import run

SECONDS = 60.0
LOOKED_AT_S = 10.0
"""Seconds, before and after the exchange, in which retransmitted segments are counted."""
ELEMENTS = 120_120
SNMP = "/proc/net/snmp"

AFTER, LOST = 1.10, 20
"""Targets: iteration time relative to the flat switch; additional retransmitted segments.

TCP fills queues and always loses some segments; their number varies.
"""


def play(stage: Stage, seed: int, seconds: float) -> Iterator[tuple[LibraryJob, Mapping[str, Any]]]:
    rings, _ = layout(stage.lab.hosts, seed)
    jobs = [LibraryJob(f"w{seed}-{n}", "gloo", "all_reduce", hosts, ELEMENTS) for n, hosts in enumerate(rings)]
    for job in jobs:
        stage.begin(job, spec_of(job, Announced.RIGHT))
    half_s = stage.now_s + seconds / 2
    stage.wait(half_s - LOOKED_AT_S)
    first = sent_again(stage)
    stage.wait(half_s)
    before, at_s = sent_again(stage), stage.now_s
    first_job, second, *_ = jobs
    if stage.planned:
        assert stage.client
        swapped = [replace(first_job, hosts=second.hosts), replace(second, hosts=first_job.hosts)]
        stage.client.update_jobs([spec_of(job, Announced.RIGHT) for job in swapped])
        stage.exchange(first_job.job_id, second.job_id)
    took_s = stage.now_s - at_s
    stage.wait(at_s + LOOKED_AT_S)
    after = sent_again(stage)
    stage.wait(half_s + seconds / 2)
    stage.end_all()
    for job in jobs:
        yield (
            job,
            {
                "at_s": at_s,
                "took_s": took_s,
                "again_before": before - first,
                "again_after": after - before,
                "moved": moved(stage.looks, at_s),
            },
        )


def sent_again(stage: Stage) -> int:
    """Return how many TCP segments all hosts together have retransmitted so far (proc(5), ``/proc/net/snmp``)."""
    total = 0
    for host in stage.lab.hosts:
        names, values = re.findall(
            r"^Tcp: (.*)$", run("ip", "netns", "exec", stage.lab.namespace(host), "cat", SNMP), re.MULTILINE
        )
        total += int(dict(zip(names.split(), values.split(), strict=True))["RetransSegs"])
    return total


def moved(looks: Sequence[Look], at_s: float) -> int:
    """Return how many pairs of hosts changed their path, or lost it, after the exchange at ``at_s``.

    It does not matter which job a pair belongs to. A pair counts once, if any ``Look`` after the exchange differs from
    the last ``Look`` before the exchange."""
    before = [look for look in looks if look.after_s <= at_s]
    if not before:
        return 0
    old = {(src, dst): path for (_, src, dst), path in before[-1].paths.items()}
    found = set()
    for look in looks[len(before) :]:
        new = {(src, dst): path for (_, src, dst), path in look.paths.items()}
        if len(look.jobs) == len(before[-1].jobs):  # comparable only until the first job ends
            found |= {pair for pair, path in old.items() if new.get(pair) != path}
    return len(found)


# ---- verdict


def lines_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    lines = []
    for row, alone_s in with_flat_s(rows):
        at_s = row.more["at_s"]
        before = [took / alone_s for begin, took in row.settled if begin + took <= at_s]
        after = [took / alone_s for begin, took in row.settled if begin + took > at_s]
        lines.append(
            {
                "mode": row.mode,
                "repeat": str(row.repeat),
                "job": row.job,
                "before": fmean(before) if before else None,
                "after": fmean(after) if after else None,
                "worst_after": max(after, default=None),
                "exchange_s": row.more["took_s"],
                "pairs_moved": row.more["moved"],
                "sent_again_before": row.more["again_before"],
                "sent_again_after": row.more["again_after"],
            }
        )
    return lines


def judge(rows: Sequence[Row]) -> Found:
    lines = lines_of(rows)
    planned = [line for line in lines if line["mode"] == Mode.PLANNED]
    more = max((line["sent_again_after"] - line["sent_again_before"] for line in planned), default=None)
    return Found(
        {"Iteration times / those on the flat switch": by_mode(rows), "Before and after the exchange": lines},
        [
            Target("an iteration after the exchange", worst(lines, "worst_after"), AFTER),
            Target("pairs of hosts whose path changed", worst(lines, "pairs_moved"), 0),
            Target("TCP segments sent again in the 10 s after, minus those in the 10 s before", more, LOST),
        ],
    )
