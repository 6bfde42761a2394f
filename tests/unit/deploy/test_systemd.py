"""The systemd units: systemd accepts them, they have few rights, and their folders match the configurations."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from controller.config import Config, load
from tests.support.doc_pages import PAGES, ROOT

UNITS = ROOT / "deploy/systemd"
CONTROLLER = (UNITS / "signalbox.service").read_text()
MOST_EXPOSURE = {"signalbox.service": 1.6, "signalbox-web.service": 1.3}
"""Largest exposure of each unit, on a scale of 10; most services of Debian are above 9."""
GUIDE = next(page for page in PAGES if page.name == "docs/how-to/run-a-standby.md")

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")


def analyzed(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, check=False, cwd="/"
    )


@needs_systemd
def test_systemd_finds_no_fault_with_the_units(tmp_path: Path) -> None:
    units = [UNITS / name for name in ("signalbox.service", "signalbox@.service", "signalbox-web.service")]
    units.append(ROOT / "deploy/slurm/signalbox-jobs.service")
    for unit in units:
        (tmp_path / unit.name).write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", unit.read_text()))
    done = analyzed("verify", "--man=no", "--recursive-errors=no", *(tmp_path / unit.name for unit in units))
    assert done.returncode == 0, done.stderr
    assert [unit.name for unit in units if unit.name in done.stderr] == []


@needs_systemd
@pytest.mark.parametrize("name", MOST_EXPOSURE)
def test_it_is_not_exposed_more_than_that(name: str, tmp_path: Path) -> None:
    shutil.copy(UNITS / name, tmp_path)  # beside a link to a template, the analysis would fail
    done = analyzed("security", "--offline=true", f"--threshold={MOST_EXPOSURE[name] * 10:.0f}", tmp_path / name)
    assert done.returncode == 0, done.stdout


def test_instances_are_the_same_unit() -> None:
    assert (UNITS / "signalbox@.service").read_text() == CONTROLLER


@pytest.mark.parametrize("config", [
    Config.model_validate(tomllib.loads(next(block.text for block in GUIDE.blocks if block.language == "toml"))),
    load(ROOT / "deploy/debian/signalbox.toml"),
], ids=["of the guide", "of the package"])  # fmt: skip
def test_its_directories_are_those_of_the_configuration(config: Config) -> None:
    lines = CONTROLLER.splitlines()
    assert f"StateDirectory={str(config.state_dir).removeprefix('/var/lib/')}" in lines
    assert f"RuntimeDirectory={config.api.listen[1].split('/')[-2]}" in lines


def test_its_user_is_made() -> None:
    (user,) = re.findall("^User=(.*)$", CONTROLLER, re.MULTILINE)
    assert re.search(f"^u {user} ", (UNITS / "sysusers.conf").read_text(), re.MULTILINE)
