"""What docs/how-to/announce-a-job.md and docs/how-to/use-tls.md say works as they say it, with the real API server."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from controller.config import ApiConfig
from controller.jobs.registry import JobRegistry
from tests.support.doc_pages import PAGES, ROOT
from tests.support.wire.control_stand_in import running_api

GUIDE = next(page for page in PAGES if page.name == "docs/how-to/announce-a-job.md")
TLS_GUIDE = next(page for page in PAGES if page.name == "docs/how-to/use-tls.md")
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


def run(command: str, folder: Path) -> str:
    """In a shell; ``signalbox`` is that of this checkout."""
    here = command.replace("192.0.2.10", "127.0.0.1")
    if here.startswith("signalbox "):
        here = f"{sys.executable} -m controller {here.removeprefix('signalbox ')}"
    done = subprocess.run(here, shell=True, cwd=folder, capture_output=True, text=True, umask=0o077)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def tls_settings(folder: Path) -> dict[str, Any]:
    """The section ``api`` of the guide, with its files in ``folder`` and a free port."""
    text = next(block.text for block in TLS_GUIDE.blocks if block.language == "toml" and "[api]" in block.text)
    settings: dict[str, Any] = tomllib.loads(text.replace("/etc/signalbox/", f"{folder}/"))["api"]
    del settings["listen"]
    ApiConfig.model_validate(settings)
    return settings


def test_certificates_tokens_and_commands_of_the_tls_guide_work_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'client'}")
    commands = list(TLS_GUIDE.commands())
    for command in commands:
        if command.startswith(("openssl", "signalbox token")):
            run(command, tmp_path)
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
