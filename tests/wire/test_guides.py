"""The program of docs/how-to/announce-a-job.md runs against the real API server."""

from __future__ import annotations

from typing import Any

import pytest

from controller.jobs.registry import JobRegistry
from tests.support.doc_pages import PAGES
from tests.support.wire.control_stand_in import running_api

GUIDE = next(page for page in PAGES if page.name == "docs/how-to/announce-a-job.md")
ITERATION_S = (0.5, 0.4)


def program(address: str) -> str:
    text = next(block.text for block in GUIDE.blocks if block.language == "python")
    assert '"unix:/run/signalbox/api.sock"' in text
    return text.replace("unix:/run/signalbox/api.sock", address)


def test_the_training_program_announces_its_job_reports_and_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    removed = JobRegistry.deregister
    with running_api() as api:

        def deregister(registry: JobRegistry, job_id: Any, *how: Any) -> Any:
            seen.append(registry.jobs[job_id])
            return removed(registry, job_id, *how)

        monkeypatch.setattr(JobRegistry, "deregister", deregister)
        exec(compile(program(api.addresses[0]), GUIDE.name, "exec"), {"train_one_iteration": lambda: ITERATION_S})
    (job,) = seen
    reported = job.vitals.reported
    assert (job.id, reported.iterations, reported.last_communication_s) == ("ring", 100, ITERATION_S[1])
