"""A ring job that trains on hosts of a lab."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from mininet_topos.demo.parts import Training, TrainingJob
from mininet_topos.lab.lab import Lab
from mininet_topos.trainer.log import read_rank_log
from tests.support.lab.waits import wait_for

ELEMENTS = 8_000
MEASURED = 3


class Ring:
    """Job that trains from the start; each rank has finished an iteration."""

    def __init__(self, lab: Lab, job: TrainingJob, api: str, folder: Path, elements: int = ELEMENTS) -> None:
        raw = folder / "raw"
        raw.mkdir(exist_ok=True)
        self._job_id = job.job_id
        self._logs = [raw / f"{job.job_id}-rank{rank}.jsonl" for rank in range(len(job.hosts))]
        self._training = Training(lab, [job], elements, api, folder / "ports", raw)
        self._training.start()

    def iterations(self) -> int:
        """Return the number of finished iterations; raise ``DemoError`` when a rank has ended."""
        self._training.read_new_lines()
        return self._training.latest()[self._job_id][0]

    def go_on(self, more: int = 3) -> None:
        before = self.iterations()
        wait_for(lambda: self.iterations() >= before + more, f"{more} more iterations of {self._job_id}")

    def communication_s(self) -> float:
        """Return the median communication time of the next iterations, without the iteration that is under way."""
        first = self.iterations() + 2
        self.go_on(2 + MEASURED)
        return median(one.communication_s for one in read_rank_log(self._logs[0]).iterations[first:])

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the first rank while the block runs, so that nothing is sent."""
        process = self._training.rank_process(self._job_id, 0)
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop the job, and assert that no iteration is missing and that every sum was right."""
        self._training.stop()
        for log in map(read_rank_log, self._logs):
            assert log.ended
            assert log.iterations
            assert [one.index for one in log.iterations] == list(range(len(log.iterations)))
            assert all(one.ok for one in log.iterations)
