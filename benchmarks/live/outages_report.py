"""Figures of ``outages``, and trainers that end in several ways.

``build`` makes rows and findings from windows, iterations and counted actions. ``exits`` tries each way to end a
trainer, one after the other, on a lab with a controller and free hosts, and measures the time until the API no longer
lists the job. When a rank is killed, its neighbours notice it at once, because the kernel closes its connections. When
its host is also cut off, the neighbours do not notice it and wait.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from subprocess import Popen, TimeoutExpired
from typing import Any

from mininet_topos.demo.parts import Training, TrainingJob
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, wait_for
from mininet_topos.trainer.log import RankLog, read_rank_log
from offline.scenarios.topologies import Host
from signalbox.client import Client
from signalbox.jobs.subflows import Pair
from signalbox.mapping import seconds

TOGETHER = 5
"""Number of consecutive iterations whose mean is compared."""
LIMIT = 1.05
LEASE_EARLY_S, LEASE_LATE_S = 0.05, 1.5
"""Limits in seconds: how much earlier or later a lease may end than the controller reported.

The lease counts from the request. The limits cover the controller's tick, two calls and a poll."""

Window = tuple[float, float]
"""Begin and end in monotonic seconds."""
Paths = Mapping[Pair, Sequence[str]]
"""Switches on the path of each pair of addresses; empty for a pair that is not pinned."""


@dataclass(frozen=True, slots=True)
class Outage:
    what: str
    away_s: float
    back_s: float | None
    """Seconds from the outage's end until ``Site.in_touch`` holds; None if it did not hold in time."""
    before: Window
    """Undisturbed window before the outage; ``after``: undisturbed window after the outage."""
    window: Window
    """Window from the begin of the outage until some time after ``back_s``."""
    after: Window
    did: Mapping[str, int]
    """Actions of the controller in the window, counted.

    ``moved``: pairs that were published with another path; ``unpinned``: with no path. ``rules``: new or missing rules
    of switches. ``registered``, ``ended``: jobs. ``plans``: runs of the planner."""
    alarms: Mapping[str, int]
    """Number of alarms raised, by kind."""
    left: Sequence[str]
    """Alarms that are still raised at the end."""


@dataclass(frozen=True, slots=True)
class Exit:
    """Result of one way of ending a job.

    ``gone``: description of when the API stopped listing the job. ``should``: the expected time. ``ok``: whether both
    agree."""

    what: str
    gone: str
    should: str
    ok: bool


def means(took_s: Sequence[float]) -> list[float]:
    """Return the mean of every ``TOGETHER`` consecutive values; empty when there are fewer."""
    return [fmean(took_s[n : n + TOGETHER]) for n in range(len(took_s) - TOGETHER + 1)]


def took_in(log: RankLog, window: Window) -> list[float]:
    """Return the seconds of the iterations that end in the window, including the one under way when it begins."""
    return [round(one.duration_s, 4) for one in log.iterations if window[0] < one.end <= window[1]]


def ratios(before: Sequence[float], disturbed: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Return the largest means of disturbed and of undisturbed iterations, divided by the median undisturbed mean.

    The results are infinite when one of the three arguments has too few iterations."""
    usual = means(before) + means(after)
    if not (means(before) and means(disturbed) and means(after)):
        return float("inf"), float("inf")
    return max(means(disturbed)) / median(usual), max(usual) / median(usual)


def changed(paths: Paths, published: Sequence[Paths]) -> tuple[int, int]:
    """Return how often a pair changed its path, and how often a pair lost its pin.

    ``paths``: paths at the start. ``published``: the published changes, in order.

    A pair that is unpinned and pinned to the same path again has not moved."""
    now, last, moved, unpinned = dict(paths), dict(paths), 0, 0
    for change in published:
        for pair, path in change.items():
            moved += bool(path) and path != last.get(pair)
            unpinned += not path and bool(now.get(pair))
            now[pair], last[pair] = path, path or last.get(pair, ())
    return moved, unpinned


def lease_ran_out(gone_s: float | None, left_s: float) -> bool:
    """Return whether a lease ended when it should.

    ``left_s``: remaining seconds of the lease that the controller reported. ``gone_s``: seconds from this report until
    the job was gone."""
    return gone_s is not None and -LEASE_EARLY_S <= gone_s - left_s <= LEASE_LATE_S


def build(outages: Sequence[Outage], exits: Sequence[Exit], logs: Sequence[RankLog]) -> dict[str, Any]:
    """Return the content of ``outages.json``. ``logs``: logs of all ranks; times are from rank 0 of each job."""
    found: dict[str, Any] = {
        "outages": [_row(outage, [log for log in logs if log.rank == 0]) for outage in outages],
        "exits": [asdict(one) for one in exits],
        "wrong_results": sum(not one.ok for log in logs for one in log.iterations),
    }
    return {**found, "missed": list(_missed(found))}


def _row(outage: Outage, logs: Sequence[RankLog]) -> dict[str, Any]:
    windows = outage.before, outage.window, outage.after
    took = {log.job_id: [took_in(log, window) for window in windows] for log in logs}
    of_jobs = [ratios(*of_job) for of_job in took.values()]
    longest_s = max((one for _, disturbed, _ in took.values() for one in disturbed), default=0.0)
    ratio, usual = (max(column) for column in zip(*of_jobs, strict=True))
    return {**asdict(outage), "ratio": ratio, "usual_ratio": usual, "longest_s": longest_s, "took_s": took}


def _missed(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences about the missed targets."""
    for row in found["outages"]:
        what, did = row["what"], row["did"]
        if row["ratio"] > LIMIT:
            yield f"{what}: {TOGETHER} iterations took {row['ratio']:.3f} times as long, above the limit of {LIMIT:g}"
        if row["back_s"] is None:
            yield f"{what}: the controller did not have all jobs again in time"
        yield from (f"{what}: {name} {did[name]}" for name in ("moved", "rules", "registered", "ended") if did[name])
        yield from (f"{what}: there is still an alarm: {text}" for text in row["left"])
    yield from (f"{row['what']}: {row['gone']}, not {row['should']}" for row in found["exits"] if not row["ok"])
    if found["wrong_results"]:
        yield f"{found['wrong_results']} iterations had a wrong result"


ELEMENTS = 20_000
ITERATIONS = 40
LEASE_S = 4.0
END_S = 30.0
RELEASED_S = 1.0
STAYS_LEASES = 2
POLL_S = 0.01


@dataclass(frozen=True)
class Ring:
    """Job with one rank on each of ``hosts``, which ends by itself after ``ITERATIONS``."""

    lab: Lab
    client: Client
    job_id: str
    hosts: Sequence[Host]
    training: Training

    def rank(self, number: int) -> Popen[Any]:
        return self.training.rank_process(self.job_id, number)

    def there(self) -> bool:
        return any(job.spec.job_id == self.job_id for job in self.client.list_jobs())

    def gone_after(self, within_s: float = END_S) -> float | None:
        """Return the seconds until the job is gone; None if it is still there after ``within_s``."""
        began = time.monotonic()
        with suppress(LabError):
            wait_for(lambda: not self.there(), "its end", within_s, POLL_S)
            return time.monotonic() - began
        return None

    def iterations(self) -> int:
        return len(read_rank_log(self.training.raw / f"{self.job_id}-rank0.jsonl").iterations)


def _released(what: str, ring: Ring) -> Exit:
    with suppress(TimeoutExpired):
        ring.rank(0).wait(END_S)
    ended, after_s = ring.rank(0).poll() is not None, ring.gone_after()
    said = "" if ended else "the program has not ended, "
    said += "registered" if after_s is None else f"gone {after_s:.2f} s after the program"
    return Exit(
        what,
        said,
        f"gone at most {RELEASED_S:g} s after the program",
        ended and after_s is not None and after_s <= RELEASED_S,
    )


def ends(ring: Ring) -> Exit:
    return _released("the program ends", ring)


def terminated(ring: Ring) -> Exit:
    """Send SIGTERM to rank 0, whose handler lets it finish an iteration."""
    ring.rank(0).terminate()
    return _released("SIGTERM to rank 0", ring)


def fails(ring: Ring) -> Exit:
    ring.rank(1).kill()
    return _released("SIGKILL of rank 1; rank 0 ends", ring)


def killed(ring: Ring) -> Exit:
    ring.rank(0).kill()
    ring.rank(0).wait()
    asked = time.monotonic()
    left_s = seconds(ring.client.get_job(ring.job_id).lease_left)
    after_s = None if ring.gone_after() is None else time.monotonic() - asked
    said = "registered" if after_s is None else f"gone after {after_s:.2f} s"
    return Exit(
        "SIGKILL of rank 0",
        said,
        f"gone after the {left_s:.2f} s that its lease had left",
        lease_ran_out(after_s, left_s),
    )


def hangs(ring: Ring) -> Exit:
    """Cut off the host of rank 1, so that rank 0 waits for ever; since rank 0 is alive, the job must stay."""
    lost, lease_s = ring.hosts[1], ring.training.lease_s
    ring.lab.cut(lost.name, lost.leaf)
    ring.rank(1).kill()
    time.sleep(lease_s / 2)  # lets calls under way finish
    done, uid = ring.iterations(), ring.client.get_job(ring.job_id).uid
    after_s = ring.gone_after(STAYS_LEASES * lease_s)
    waits = ring.rank(0).poll() is None and ring.iterations() == done
    same = after_s is None and ring.client.get_job(ring.job_id).uid == uid
    ring.lab.plug(lost.name, lost.leaf)
    said = f"{'registered' if same else 'gone'}, rank 0 {'waits' if waits else 'does not wait'}"
    should = f"registered for {STAYS_LEASES * lease_s:g} s, with leases of {lease_s:g} s"
    return Exit("SIGKILL of rank 1 on a host that is cut off", said, should, same and waits)


Way = Callable[[Ring], Exit]
WAYS: Sequence[Way] = (ends, terminated, fails, killed, hangs)


def exits(
    lab: Lab,
    client: Client,
    address: str,
    folder: Path,
    hosts: Sequence[Host],
    ways: Sequence[Way] = WAYS,
    lease_s: float = LEASE_S,
) -> list[Exit]:
    """Run one job for each way to exit, and return the results.

    - ``address``: address of the controller.
    - ``folder``: folder for the files of ranks.
    - ``hosts``: hosts of each ring."""
    raw = folder / "exits"
    raw.mkdir()
    names = {way.__name__ for way in ways}
    found = []
    for way in ways:
        # Two jobs must not announce the same pairs.
        wait_for(
            lambda: not names & {job.spec.job_id for job in client.list_jobs()}, "the previous job to be removed", END_S
        )
        jobs = [TrainingJob(way.__name__, tuple(hosts))]
        training = Training(lab, jobs, ELEMENTS, address, folder / "ports", raw, END_S, lease_s, ITERATIONS)
        ring = Ring(lab, client, way.__name__, hosts, training)
        training.start()
        try:
            wait_for(ring.there, f"{way.__name__} to be registered", END_S)
            found.append(way(ring))
        finally:
            for number in range(len(hosts)):
                ring.rank(number).kill()
    return found
