"""Report of ``outages``, and jobs that end in several ways.

``build`` makes the report from iterations and counted actions. ``exits`` runs one job per way to end, and measures the
time until the API no longer lists it. When a rank is killed, its neighbours notice it, because the kernel closes its
connections. When its host is cut off as well, they do not notice it, and wait.
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
"""Number of consecutive iterations whose mean duration is compared."""
LIMIT = 1.05
LEASE_EARLY_S, LEASE_LATE_S = 0.05, 1.5
"""Seconds by which a lease may end earlier and later than the controller announced.

They cover the controller's tick, two calls, and a poll of the API.
"""

Window = tuple[float, float]
"""Start and end of a period in monotonic seconds."""
Paths = Mapping[Pair, Sequence[str]]
"""Switches on the path of each pair of addresses; an empty path for a pair without a pin."""


@dataclass(frozen=True, slots=True)
class Outage:
    what: str
    away_s: float
    back_s: float | None
    """Seconds from the end of the outage until ``Site.in_touch`` is true again; None if that took too long."""
    before: Window
    """Undisturbed period before the outage; ``after`` is the one after it."""
    window: Window
    """Period from the start of the outage until some time after the controller has all jobs again."""
    after: Window
    did: Mapping[str, int]
    """Numbers of the controller's actions in ``window``.

    ``moved``, ``unpinned``: pairs that got another path, or none. ``rules``: rules of switches that were added or
    removed. ``registered``, ``ended``: jobs. ``plans``: runs of the planner."""
    alarms: Mapping[str, int]
    left: Sequence[str]
    """Texts of the alarms that were still raised after ``window``."""


@dataclass(frozen=True, slots=True)
class Exit:
    """Result of one way to end a job.

    ``gone``: when the API stopped listing the job, in words. ``should``: when it should have. ``ok``: whether it
    did."""

    what: str
    gone: str
    should: str
    ok: bool


def means(took_s: Sequence[float]) -> list[float]:
    """Return the means of all ``TOGETHER`` consecutive values; none if there are fewer values."""
    return [fmean(took_s[n : n + TOGETHER]) for n in range(len(took_s) - TOGETHER + 1)]


def took_in(log: RankLog, window: Window) -> list[float]:
    """Return the seconds of the iterations that ended in the window, even if they began before it."""
    return [round(one.duration_s, 4) for one in log.iterations if window[0] < one.end <= window[1]]


def ratios(before: Sequence[float], disturbed: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Return the largest ``means`` of disturbed and of undisturbed iterations, relative to the undisturbed median.

    Both are infinite if one of the arguments has too few iterations."""
    usual = means(before) + means(after)
    if not (means(before) and means(disturbed) and means(after)):
        return float("inf"), float("inf")
    return max(means(disturbed)) / median(usual), max(usual) / median(usual)


def changed(paths: Paths, published: Sequence[Paths]) -> tuple[int, int]:
    """Return how often a pair got another path, and how often a pair lost its pin.

    ``paths``: paths at the start. ``published``: later changes, in order. A pair that loses its pin and gets the
    same path again has not moved."""
    now, last, moved, unpinned = dict(paths), dict(paths), 0, 0
    for change in published:
        for pair, path in change.items():
            moved += bool(path) and path != last.get(pair)
            unpinned += not path and bool(now.get(pair))
            now[pair], last[pair] = path, path or last.get(pair, ())
    return moved, unpinned


def lease_ran_out(gone_s: float | None, left_s: float) -> bool:
    """Return whether a job ended with its lease.

    ``left_s``: seconds that the lease still had, by the controller's answer. ``gone_s``: seconds from the request of
    this answer until the job was gone."""
    return gone_s is not None and -LEASE_EARLY_S <= gone_s - left_s <= LEASE_LATE_S


def build(outages: Sequence[Outage], exits: Sequence[Exit], logs: Sequence[RankLog]) -> dict[str, Any]:
    """Return the content of ``outages.json``. Durations are those of each job's rank 0."""
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
    for row in found["outages"]:
        what, did = row["what"], row["did"]
        if row["ratio"] > LIMIT:
            yield f"{what}: {TOGETHER} iterations took {row['ratio']:.3f} times as long as usual (at most {LIMIT:g})"
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
    """Job with a rank on each of ``hosts``. Its program ends after ``ITERATIONS`` iterations."""

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
        """Return the seconds until the API no longer lists the job; None if it still does after ``within_s``."""
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
    """Send SIGTERM to rank 0, which then finishes its iteration and ends."""
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
    """Kill rank 1 and cut off its host: rank 0 waits for ever. Since it lives, the job must stay registered."""
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
    """Return the results of all ``ways`` to end a job, tried one after the other on the same ``hosts``.

    ``address``: address of the controller. ``folder``: folder for the files of the ranks."""
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
