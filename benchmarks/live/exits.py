"""Trainers that end in several ways, for ``outages``, and the time until the API no longer lists their jobs.

The input is a lab with a controller, and free hosts. The result is an ``Exit`` for each way, tried one after the other.
When a rank is killed, its neighbours notice it at once, because the kernel closes its connections. When its host is
also cut off, the neighbours do not notice it and wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

from benchmarks.live.outages_report import Exit, lease_ran_out
from mininet_topos.demo.parts import Training, TrainingJob
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, wait_for
from mininet_topos.trainer.log import read_rank_log
from offline.scenarios.topologies import Host
from signalbox.client import Client
from signalbox.mapping import seconds

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
            lambda: not names & {job.spec.job_id for job in client.list_jobs()}, "the job before to be gone", END_S
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
