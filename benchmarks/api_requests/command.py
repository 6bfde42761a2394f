"""Benchmark ``api-requests``: send generated requests to every method of a real controller, and kill it meanwhile.

    .venv/bin/python -m benchmarks api-requests [--count N] [--seed S] [--first I] [--kills K]

No request may end with INTERNAL or UNKNOWN, or with an error without details, and the log must not report an error.
Request I of seed S depends only on I, on S, and on the lease and resume tokens in earlier answers.

The controller is killed with SIGKILL K times, at even intervals, and once more at the end, each time during a
registration. After each restart the controller must have every job that it had acknowledged.

The output has the answers by method, and the number and bytes of each request that failed. The exit status is 1 when
something failed.
"""

import re
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer

from benchmarks.api_requests.cases import MAX_MESSAGE_BYTES, Case, case
from benchmarks.api_requests.raw import KEPT, KEPT_RAW, Raw, raw, send_raw
from benchmarks.api_requests.sending import Ledger, Outcome, Sender
from benchmarks.api_requests.values import JOB_IDS, METHODS, Known, spec
from benchmarks.measures import figures_of, report, usage
from mininet_topos.controller_process import POLL_S, START_S, ControllerProcess, Settings
from mininet_topos.lab.record import wait_for
from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.v1 import signalbox_pb2 as pb

RESULTS = Path("out/bench/api_requests.json")
SETTINGS: Settings = {"api": {"max_message_bytes": MAX_MESSAGE_BYTES}, "jobs": {"max_jobs": len(JOB_IDS) - 4}}
MEBI = 1 << 20
MEMORY_EVERY = 1000
"""Number of requests between two measurements of the controller's memory."""
RAW_EVERY = 40
"""Period of requests in raw HTTP/2 frames: every 40th request is one."""
MOST_FAILURES = 20
ENDING_S = 0.5
"""Seconds to wait after a failure, before checking whether the controller has ended."""
_BAD_LINE = re.compile(rb"Traceback|\[error|\[critical|\"level\": ?\"(error|critical)\"")


@dataclass
class OfMethod:
    """Answers of one method.

    ``worst_ms``: duration of the slowest call that waited for its answer. ``worst``: number of this request."""

    requests: int = 0
    codes: dict[str, int] = field(default_factory=dict)
    worst_ms: float = 0.0
    worst: str = ""


@dataclass
class Result:
    seed: int
    first: int
    count: int
    seconds: float = 0.0
    methods: dict[str, OfMethod] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    memory_mb: list[list[float]] = field(default_factory=lambda: [[]])
    """Memory in MiB after every ``MEMORY_EVERY`` requests; one list per start of the controller."""
    restored: list[int] = field(default_factory=list)
    """Number of acknowledged jobs that the controller had to have after each kill."""
    bad_lines: int = 0
    failures: list[str] = field(default_factory=list)

    def count_in(self, number: str, sent: Case, outcome: Outcome) -> None:
        found = self.methods.setdefault(sent.path if sent.path in METHODS else "others", OfMethod())
        found.requests += 1
        found.codes[outcome.code.name] = found.codes.get(outcome.code.name, 0) + 1
        self.kinds[sent.what] = self.kinds.get(sent.what, 0) + 1
        if not outcome.cut and 1e3 * outcome.seconds > found.worst_ms:
            found.worst_ms, found.worst = 1e3 * outcome.seconds, number


class _Log:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._at = 0

    def bad_lines(self) -> list[str]:
        """Return the lines, written since the last call, that report an error or begin a traceback."""
        with self._file.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        return [line.decode(errors="replace") for line in whole.splitlines() if _BAD_LINE.search(line)]


class _Run:
    def __init__(self, controller: ControllerProcess, client: Client, result: Result) -> None:
        self.controller = controller
        self.client = client
        self.result = result
        self.ledger = Ledger()
        self.known = Known()
        self._log = _Log(controller.log)
        self._in_this_life = 0

    def all(self, kills: int) -> None:
        """Send the kept requests and the requests of the seed, and kill the controller ``kills`` times meanwhile."""
        first, count = self.result.first, self.result.count
        kill_at = {first + count * (n + 1) // (kills + 1) for n in range(kills)}
        began = time.monotonic()
        with Sender(self.controller.address, self.known) as sender:
            for n, kept in enumerate(KEPT):
                self._send(sender, f"kept {n}", kept)
            for n, frames in enumerate(KEPT_RAW):
                self._send_raw(f"kept, raw {n}", frames)
            for number in range(first, first + count):
                if number in kill_at:
                    self._kill(sender, number)
                if number % RAW_EVERY == RAW_EVERY - 1:
                    self._send_raw(str(number), raw(self.result.seed, number))
                else:
                    self._send(sender, str(number), case(self.result.seed, number, self.known))
                self._measure()
                if len(self.result.failures) >= MOST_FAILURES:
                    break
            self.result.seconds = time.monotonic() - began
            self._kill(sender, first + count)

    def _send(self, sender: Sender, number: str, sent: Case) -> None:
        outcome = sender.send(sent)
        self.ledger.record(sent, outcome)
        self.result.count_in(number, sent, outcome)
        self._judge(number, str(sent), outcome.wrong(sent))

    def _send_raw(self, number: str, sent: Raw) -> None:
        status = send_raw(self.controller.address.removeprefix("unix:"), sent)
        self.ledger.open(Case(sent.what, sent.path, (sent.message,)))
        self.result.kinds["raw"] = self.result.kinds.get("raw", 0) + 1
        self._judge(number, str(sent), sent.wrong(status))

    def _judge(self, number: str, sent: str, wrong: str) -> None:
        bad = self._log.bad_lines()
        self.result.bad_lines += len(bad)
        for problem in filter(None, (wrong, "in the log: " + "; ".join(bad) if bad else "")):
            self.result.failures.append(f"seed {self.result.seed}, request {number}: {problem}\n  {sent}")
            time.sleep(ENDING_S)
        self.controller.check()

    def _measure(self) -> None:
        self._in_this_life += 1
        if self._in_this_life % MEMORY_EVERY == 0:
            self.result.memory_mb[-1].append(usage(self.controller.process).rss_bytes / MEBI)

    def _kill(self, sender: Sender, number: int) -> None:
        """Kill the controller during a registration, and check that it still has all acknowledged jobs afterwards."""
        self._in_this_life = 0
        request = pb.RegisterJobRequest(spec=spec(Random(number), JOB_IDS[0]), take_over=True)
        last = Case("killed", "/signalbox.v1.JobService/RegisterJob", (request.SerializeToString(),))
        self._compare(number, "before")
        call = sender.begin(last)
        self.ledger.open(last)
        self.controller.kill()
        call.cancel()
        self.controller.start()
        wait_for(lambda: self.controller.ready(self.client), "the controller", START_S, POLL_S)
        self._compare(number, "after")
        self.result.restored.append(len(self.ledger.jobs))
        self.result.memory_mb.append([])

    def _compare(self, number: int, when: str) -> None:
        found = {job.spec.job_id: self.client.get_job(job.spec.job_id) for job in self.client.list_jobs()}
        for difference in self.ledger.differences(found):
            self.result.failures.append(f"seed {self.result.seed}, {when} the kill at {number}: {difference}")


def run(seed: int, count: int, first: int = 0, kills: int = 1) -> Result:
    """Send requests ``first`` to ``first + count - 1`` of the seed in order, and stop early after too many failures."""
    result = Result(seed, first, count)
    with tempfile.TemporaryDirectory(prefix="signalbox-api-requests-") as folder:
        controller = ControllerProcess(Path(folder), settings=SETTINGS)
        with controller.running() as client:
            try:
                _Run(controller, client, result).all(kills)
            except SignalboxError as error:
                result.failures.append(str(error))
            status = controller.stop()
            if status != 0:
                result.failures.append(f"the controller ended with {status}")
    return result


def main(
    count: Annotated[int, typer.Option(min=1, help="Number of requests.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    first: Annotated[int, typer.Option(min=0, help="Number of the first request.")] = 0,
    kills: Annotated[int, typer.Option(min=0, help="Number of SIGKILLs before the one at the end.")] = 1,
) -> None:
    """Send generated requests, correct to hostile, to every method of the API."""
    result = run(seed, count, first, kills)
    data: dict[str, Any] = asdict(result)
    figures = {name: value for name, value in data.items() if name not in ("methods", "failures")}
    methods = [
        {"method": path, **of_method, "codes": [f"{code} {number}" for code, number in of_method["codes"].items()]}
        for path, of_method in sorted(data["methods"].items())
    ]
    report(
        data,
        RESULTS,
        {"Generated requests": figures_of(figures), "Methods": methods},
        *result.failures or ["nothing failed"],
    )
    raise typer.Exit(bool(result.failures))
