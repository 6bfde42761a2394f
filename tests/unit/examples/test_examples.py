"""What README.md tells a new user to run exists and is what it shows."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from pathlib import Path

import pytest

from controller.config import load
from controller.jobs.collectives import check, virtual_links
from controller.jobs.spec import JobSpec
from mininet_topos.lab import __main__ as lab
from mininet_topos.leaf_spine import LeafSpine

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
JOBS = sorted((ROOT / "examples").glob("*.json"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [t for t in re.findall(r"\]\(([^)#\s]+)", page.read_text()) if "://" not in t]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_configuration_knows_the_rates_of_the_lab() -> None:
    fabric, options = load(ROOT / "examples" / "emulated.toml").fabric, inspect.signature(lab.main).parameters
    mbps = options["fabric_mbps"].default, options["host_mbps"].default
    assert (fabric.link_bps, fabric.host_link_bps) == (mbps[0] * 1e6, mbps[1] * 1e6)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_example_jobs_are_jobs_of_the_labs_hosts(job: Path) -> None:
    spec = JobSpec.parse(json.loads(job.read_text()))
    assert check(spec) == []
    assert set(spec.endpoints) <= {host.ip for host in LeafSpine(4, 4, 4).fabric.hosts}


def test_the_example_jobs_share_no_pair() -> None:
    pairs = [(v.src_ip, v.dst_ip) for job in JOBS for v in virtual_links(JobSpec.parse(json.loads(job.read_text())))]
    assert len(pairs) == len(set(pairs)) == 16


def test_the_readme_shows_the_example_job_as_it_is() -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    assert json.loads(shown) == json.loads((ROOT / "examples" / "language.json").read_text())


@pytest.mark.parametrize("page", ["README.md", "docs/api.md"])
def test_python_examples_compile(page: str) -> None:
    for example in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
        compile(textwrap.dedent(example), page, "exec")


def test_the_first_spec_of_the_api_page_is_a_spec_file() -> None:
    shown = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "api.md").read_text(), re.DOTALL)[0]
    assert check(JobSpec.parse(json.loads(shown))) == []
