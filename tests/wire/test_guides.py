"""Claims of pages of docs/how-to, with the real API server: joining from Python, commands, TLS, slow jobs."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import signalbox
from controller.config import ApiConfig
from controller.jobs.messages import RegisterJob, ReportIterations
from controller.jobs.registry import JobRegistry
from signalbox.cli import main
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from signalbox.joining import join
from tests.support.busy_fabric import Ring
from tests.support.command_line import runs
from tests.support.doc_pages import PAGES, ROOT
from tests.support.fake_fabric import FABRIC_BPS
from tests.support.waiting import until
from tests.support.wire.control_stand_in import running_api
from tests.support.wire.served_fabric import ServedFabric, example_job

GUIDE = next(page for page in PAGES if page.name == "docs/how-to/join-from-python.md")
RUN_GUIDE = next(page for page in PAGES if page.name == "docs/how-to/run-any-command.md")
FORMATS = next(page for page in PAGES if page.name == "docs/reference/file-formats.md")
TLS_GUIDE = next(page for page in PAGES if page.name == "docs/how-to/use-tls.md")
SPEC = {"job_id": "ring", "endpoints": ["10.0.1.1", "10.0.2.1"]}


def programs() -> list[str]:
    return [block.text for block in GUIDE.blocks if block.language == "python"]


@pytest.mark.parametrize("number", range(len(programs())))
def test_the_programs_announce_their_job_report_and_release_it(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    removed = JobRegistry.deregister
    given = {name: lambda *_: None for name in ("train", "compute", "all_reduce", "log_routes")}
    with running_api() as api:

        def deregister(registry: JobRegistry, job_id: Any, *how: Any) -> Any:
            seen.append(registry.jobs[job_id])
            return removed(registry, job_id, *how)

        def started(*announced: Any, **more: Any) -> signalbox.Job:
            jobs.append(join(*announced, **more, strict=True))  # a short program may end before its job begins
            return jobs[-1]

        jobs: list[signalbox.Job] = []
        monkeypatch.setenv("SIGNALBOX_ADDRESS", api.addresses[0])
        monkeypatch.setattr(JobRegistry, "deregister", deregister)
        monkeypatch.setattr(signalbox, "join", started, raising=False)
        text = "import signalbox\n" + programs()[number]
        exec(compile(text, GUIDE.name, "exec"), {**given, "batches": range(100), "SPEC": SPEC})
        jobs[0].leave()
    (job,) = seen
    assert job.id == "ring"
    assert job.vitals.reported.iterations == (100, 0, 2)[number]


RUNS = [command for command in RUN_GUIDE.commands() if command.startswith("signalbox run ")]


@pytest.mark.parametrize("command", RUNS)
def test_the_commands_that_run_others_announce_their_job(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses = next(block.text for block in FORMATS.blocks if "n1: 10.0.1.1" in block.text)
    addresses = addresses.replace("10.0.2.1-2", "10.0.3.1-2").replace("n2.example.com: 10.0.1.2", "n2: 10.0.2.1")
    (tmp_path / "addresses.yaml").write_text(addresses)
    (tmp_path / "ring.yaml").write_text(json.dumps(SPEC))
    for name in ("mpirun", "torchrun"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\nread line\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'client'}")
    assert "export SIGNALBOX_ADDRESS=192.0.2.10:50051" in RUN_GUIDE.commands()
    with running_api() as api:
        monkeypatch.setenv("SIGNALBOX_ADDRESS", api.addresses[0])
        here = command.replace("--rdzv-endpoint 10.0.1.1", "--rdzv-endpoint 127.0.0.1")  # this is the first node
        words = [sys.executable, "-m", *shlex.split(here)]
        with subprocess.Popen(words, cwd=tmp_path, stdin=subprocess.PIPE) as process:
            until(lambda: api.control.registry.jobs)
            (show,) = {code for code in RUN_GUIDE.inline_code if code.startswith("signalbox jobs show")}
            assert (
                "observed" in runs("signalbox", main, capsys, monkeypatch)(*show.split()[1:]).out or "--spec" in command
            )
            (job,) = api.control.registry.jobs.values()
            process.communicate(b"end\n", timeout=60)
            assert process.returncode == 0
        assert not api.control.registry.jobs
    assert set(job.spec.endpoints) == set(SPEC["endpoints"])
    assert len(job.spec.endpoints) == (2 if "--hosts" in command or "--spec" in command else 8)


def run(command: str, folder: Path) -> str:
    """Run a command in a shell; ``signalbox`` is the command of this checkout."""
    here = command.replace("192.0.2.10", "127.0.0.1")
    if here.startswith("signalbox "):
        here = f"{sys.executable} -m controller {here.removeprefix('signalbox ')}"
    done = subprocess.run(here, shell=True, cwd=folder, capture_output=True, text=True, umask=0o077)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def tls_settings(folder: Path) -> dict[str, Any]:
    """Return the section ``api`` of the guide, with its files in ``folder`` and a free port."""
    text = next(block.text for block in TLS_GUIDE.blocks if block.language == "toml" and "[api]" in block.text)
    settings: dict[str, Any] = tomllib.loads(text.replace("/etc/signalbox/", f"{folder}/"))["api"]
    del settings["listen"]
    ApiConfig.model_validate(settings)
    return settings


def test_certificates_tokens_and_commands_of_the_tls_guide_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys are those of an elliptic curve here, because making seven RSA keys takes seconds."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'client'}")
    commands = list(TLS_GUIDE.commands())
    for command in commands:
        if command.startswith(("for ", "openssl", "signalbox token")):
            run(command.replace("rsa:3072", "ec -pkeyopt ec_paramgen_curve:P-256"), tmp_path)
    tables = next(block.text for block in TLS_GUIDE.blocks if "[[certificate]]" in block.text)
    with (tmp_path / "tokens.toml").open("a") as tokens:
        tokens.write(tables)
    shown = [command for command in commands if command.startswith(("signalbox jobs list", "signalbox status"))]
    assert len(shown) == 2
    with running_api(**tls_settings(tmp_path)) as api:
        for command in shown:
            run(command.replace("192.0.2.10:50051", api.addresses[0]), tmp_path)
        (text,) = (block.text for block in TLS_GUIDE.blocks if block.language == "python")
        program = tmp_path / "program.py"
        program.write_text(text.replace("192.0.2.10:50051", api.addresses[0]))
        assert run(f"{sys.executable} {program}", tmp_path) == "[]\n"


SLOW_GUIDE = next(page for page in PAGES if page.name == "docs/how-to/when-a-job-is-slow.md")
ITERATION_S, COMMUNICATION_S = 10.25, 10.05
DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
TENTHS = re.compile(r"(?<=\d)\.\d(?=%)")
"""Pattern of the tenths of measured percentages, which depend on the times of polls."""


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
    found: dict[str, str] = {}
    for block in SLOW_GUIDE.blocks:
        for part in block.text.split("$ ")[1:]:
            command, _, answer = part.strip().partition("\n")
            found[command] = answer
    return found


def plain(text: str) -> str:
    """Return the text on one line, without rules of tables, with "DATE" for dates and whole percentages."""
    return " ".join(TENTHS.sub("", DATE.sub("DATE", text)).replace("─", "").split())


@pytest.mark.parametrize("command", answers())
def test_the_answer_is_that_of_the_page(
    command: str, address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNALBOX_ADDRESS", address)
    result = runs("signalbox", main, capsys, monkeypatch)(*command.split()[1:])
    assert result.status == 0
    parts = [plain(part) for part in answers()[command].split("…")]
    assert any(parts)
    assert [part for part in parts if part not in plain(result.out)] == []
