"""Benchmark ``long-run``: memory and files of a controller that many short jobs use, which must stay bounded.

    .venv/bin/python -m benchmarks long-run [--cycles 50000] [--renewals 1000000] [--calls-per-s N] [--folder DIR]

The real controller has a state directory, TLS, a tokens file and the default limits. In a cycle a client registers a
job, updates it, renews its lease and ends it; four clients do so at the same time. With ``--folder`` a run continues
with the state of the run before, so that a long run can be made in parts.

The exit status is 1 when the memory has grown by more than 10 % since a fifth of the cycles was done. By then the
controller remembers as much as it may: 10,000 ended jobs and 10,000 lease tokens.
"""

import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.measures import report, usage
from controller.api.identities import Role, new_token, token_table
from mininet_topos.controller_process import ControllerProcess, reserve_port
from mininet_topos.trainer.training import announcement
from signalbox.client import Client
from signalbox.credentials import Credentials
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import Algorithm, JobSpec
from tests.support.wire.certificates import Authority

RESULTS = Path("out/bench/long_run.json")
CLIENTS = 4
PARTS = 10
"""Number of samples after the first one, at even distances of cycles."""
MEMORY = 1.1
FILLED = PARTS // 5
"""Index of the sample with which the last one is compared."""
RANKS = 8
LEASE_S = 60.0
POLL_S = 0.2
KIBI, MEBI = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources of the controller at one time. Sizes of files are in KiB, and 0 if there is no file."""

    cycles: int
    renewals: int
    seconds: float
    cpu_s: float
    rss_mb: float
    """Memory of the controller and its child processes in MiB."""
    descriptors: int
    state_kib: float
    wal_kib: float
    events_kib: float
    log_kib: float


class Load:
    """Calls of all clients together, at most ``calls_per_s`` a second.

    ``stopping``: each client ends after its current cycle once this is set."""

    def __init__(self, cycles: int, renewals: int, calls_per_s: float) -> None:
        self.cycles = self.renewals = 0
        self.stopping = threading.Event()
        self._most = cycles
        self._renewals = renewals
        self._period_s = CLIENTS / calls_per_s
        self._lock = threading.Lock()
        self._begun = 0

    def run(self, address: str, credentials: Credentials, client_number: int) -> None:
        """Run cycles as client ``client_number`` until all are done. Raises ``SignalboxError``."""
        with Client(address, credentials=credentials) as client:
            while (cycle := self._next()) is not None:
                job_id = f"job-{client_number}-{cycle}"
                token = client.register_job(_job(job_id, client_number, 1_000_000)).lease_token
                self._pause()
                client.update_job(_job(job_id, client_number, 2_000_000))
                for _ in range(self._renewals_of(cycle)):
                    self._pause()
                    client.renew_lease(job_id, token)
                    with self._lock:
                        self.renewals += 1
                self._pause()
                client.deregister_job(job_id, token)
                self._pause()
                with self._lock:
                    self.cycles += 1

    def _next(self) -> int | None:
        with self._lock:
            if self._begun == self._most or self.stopping.is_set():
                return None
            self._begun += 1
            return self._begun - 1

    def _renewals_of(self, cycle: int) -> int:
        return self._renewals * (cycle + 1) // self._most - self._renewals * cycle // self._most

    def _pause(self) -> None:
        self.stopping.wait(self._period_s)


def _job(job_id: str, client_number: int, size: int) -> JobSpec:
    ips = [f"10.9.{client_number}.{rank}" for rank in range(1, RANKS + 1)]
    return announcement(job_id, ips, Algorithm.RING_ALL_REDUCE, size, LEASE_S)


def _secured(folder: Path) -> tuple[dict[str, str], Credentials]:
    """Return settings of the API with new certificates and tokens, and a client's credentials."""
    authority = Authority(folder, "authority")
    own = authority.sign("controller", also="IP:127.0.0.1")
    secret, digest = new_token()
    tokens, token = folder / "tokens.toml", folder / "trainers.token"
    for file, text in ((tokens, token_table("trainers", Role.TENANT, "blue", digest)), (token, secret)):
        file.touch(0o600)
        file.write_text(text)
    api = {"certificate": str(own.certificate), "private_key": str(own.private_key), "tokens": str(tokens)}
    return api, Credentials(tls_ca=authority.certificate, token_file=token)


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="signalbox-long-run-") as name:
        yield Path(name)


def measured(folder: Path, load: Load, cycles: int) -> list[Sample]:
    """Return a sample from before the cycles, and one after each tenth of them.

    Raises ``SignalboxError``, for example when an ended job is still registered."""
    api, credentials = _secured(folder)
    address = f"127.0.0.1:{reserve_port()}"
    controller = ControllerProcess(folder)
    controller.settings = {"api": {"listen": [controller.address, address], **api}}
    with controller.running() as operator, ThreadPoolExecutor(CLIENTS) as clients:
        began, samples = time.monotonic(), [_sample(controller, load, 0.0)]
        running = [clients.submit(load.run, address, credentials, number) for number in range(CLIENTS)]
        try:
            while not all(each.done() for each in running):
                time.sleep(POLL_S)
                controller.check()
                if load.cycles < cycles and load.cycles * PARTS >= len(samples) * cycles:
                    samples.append(_sample(controller, load, time.monotonic() - began))
        finally:
            load.stopping.set()
        for each in running:
            each.result()
        samples.append(_sample(controller, load, time.monotonic() - began))
        if left := len(operator.list_jobs()):
            raise SignalboxError(f"{left} ended jobs are still registered")
    return samples


def _sample(controller: ControllerProcess, load: Load, seconds: float) -> Sample:
    assert controller.process
    found, state = usage(controller.process), controller.folder / "state"
    files = (state / "state.db", state / "state.db-wal", state / "events.jsonl", controller.log)
    return Sample(
        load.cycles,
        load.renewals,
        seconds,
        found.cpu_s,
        found.rss_bytes / MEBI,
        len(list(Path(f"/proc/{controller.process.pid}/fd").iterdir())),
        *(file.stat().st_size / KIBI if file.exists() else 0.0 for file in files),
    )


def main(
    cycles: Annotated[int, typer.Option(min=PARTS, help="Number of jobs to register, update and end.")] = 50_000,
    renewals: Annotated[
        int, typer.Option(min=0, help="Number of renewals of leases, spread evenly over the cycles.")
    ] = 1_000_000,
    calls_per_s: Annotated[
        float, typer.Option(min=1, help="Largest number of calls per second, all clients together.")
    ] = 500.0,
    folder: Annotated[Path | None, typer.Option(help="Directory of the state, kept for the next part.")] = None,
) -> None:
    """Register, update, renew and end jobs for a long time: memory and files must stay bounded."""
    with _folder(folder) as place:
        samples = measured(place, Load(cycles, renewals, calls_per_s), cycles)
    rows = [asdict(sample) for sample in samples]
    report(rows, RESULTS, {f"{cycles} cycles": rows})
    raise typer.Exit(samples[-1].rss_mb > MEMORY * samples[FILLED].rss_mb)
