"""What README.md and the guides tell a new user to run is what it is said to be."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from controller.config import load
from controller.jobs.collectives import check, virtual_links
from controller.jobs.spec import JobSpec
from controller.offline.topologies import leaf_spine
from mininet_topos.lab import __main__ as lab
from tests.support.doc_pages import PAGES, ROOT

FABRIC = leaf_spine(4, 4, 4, 5e6, 5e6)
"""The lab's, unless told otherwise."""
JOBS = sorted((ROOT / "examples").glob("*.json"))


def shown_first(page: str, language: str) -> str:
    blocks = next(p for p in PAGES if p.name == page).blocks
    return next(block.text for block in blocks if block.language == language)


def test_the_configuration_knows_the_rates_of_the_lab() -> None:
    fabric, options = load(ROOT / "examples" / "emulated.toml").fabric, inspect.signature(lab.main).parameters
    mbps = options["fabric_mbps"].default, options["host_mbps"].default
    assert (fabric.link_bps, fabric.host_link_bps) == (mbps[0] * 1e6, mbps[1] * 1e6)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_example_jobs_are_jobs_of_the_labs_hosts(job: Path) -> None:
    spec = JobSpec.parse(json.loads(job.read_text()))
    assert check(spec) == []
    assert set(spec.endpoints) <= {host.ip for host in FABRIC.hosts}


def test_the_example_jobs_share_no_pair() -> None:
    pairs = [(v.src_ip, v.dst_ip) for job in JOBS for v in virtual_links(JobSpec.parse(json.loads(job.read_text())))]
    assert len(pairs) == len(set(pairs)) == 16


def test_the_readme_shows_the_example_job_as_it_is() -> None:
    assert json.loads(shown_first("README.md", "json")) == json.loads((ROOT / "examples/language.json").read_text())


def test_the_first_spec_of_the_reference_is_a_spec_file() -> None:
    assert check(JobSpec.parse(json.loads(shown_first("docs/reference/job-spec.md", "json")))) == []


def test_the_cable_that_the_tutorial_cuts_is_the_one_that_it_names() -> None:
    (cable,) = (cable for cable in FABRIC.cables if (cable.a, cable.b) == ("leaf1", "spine1"))
    assert cable.b_port == 1
    assert "ip link set spine1-eth1 down" in (ROOT / "docs/tutorial.md").read_text()
