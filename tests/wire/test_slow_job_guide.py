"""docs/how-to/when-a-job-is-slow.md: each of its commands prints what the page shows, on a fabric with slow jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from controller.jobs.messages import RegisterJob, ReportIterations
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from tests.support.busy_fabric import Ring
from tests.support.command_line import Signalbox, signalbox
from tests.support.doc_pages import PAGES
from tests.support.fake_fabric import FABRIC_BPS
from tests.support.wire.served_fabric import ServedFabric, example_job

__all__ = ("signalbox",)

GUIDE = next(page for page in PAGES if page.name == "docs/how-to/when-a-job-is-slow.md")
ITERATION_S, COMMUNICATION_S = 10.25, 10.05
DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
TENTHS = re.compile(r"(?<=\d)\.\d(?=%)")
"""Tenths of measured shares, which depend on the times of polls."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Run an API with two slow jobs.

    A cable is down, so that ``vision`` is slow. ``language`` sends backwards, at half of its rate."""
    fabric = ServedFabric.of_four_leaves()
    jobs = [example_job(name) for name in ("language", "vision")]
    for job in jobs:
        fabric.send(RegisterJob(job))
        for ips in (job.endpoints[:4], job.endpoints[4:]):
            backwards = job.job_id == "language"
            fabric.rings.append(Ring(ips[::-1], most_bps=FABRIC_BPS / 2) if backwards else Ring(ips))
    fabric.run(5)
    fabric.cut_first_cable()
    for index in range(8):
        fabric.carry(ITERATION_S)
        for job in jobs:
            iteration = IterationTime(index, ITERATION_S, COMMUNICATION_S)
            fabric.send(ReportIterations(JobId(job.job_id), (iteration,)))
    with fabric.served() as address:
        yield address


def answers() -> dict[str, str]:
    """Return the answers of the page by command."""
    found: dict[str, str] = {}
    for block in GUIDE.blocks:
        for part in block.text.split("$ ")[1:]:
            command, _, answer = part.strip().partition("\n")
            found[command] = answer
    return found


def plain(text: str) -> str:
    """Return the text on one line, without rules of tables, with "DATE" for dates and whole percentages."""
    return " ".join(TENTHS.sub("", DATE.sub("DATE", text)).replace("─", "").split())


@pytest.mark.parametrize("command", answers())
def test_the_answer_is_that_of_the_page(
    command: str, address: str, signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNALBOX_ADDRESS", address)
    result = signalbox(*command.split()[1:])
    assert result.status == 0
    parts = [plain(part) for part in answers()[command].split("…")]
    assert any(parts)
    assert [part for part in parts if part not in plain(result.out)] == []
