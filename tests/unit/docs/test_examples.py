"""Tests that README.md and the guides show a new user what really happens."""

import inspect
import json
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.api.convert import job_message
from controller.config import load
from controller.jobs.messages import RegisterJob
from mininet_topos.lab.command import RATE_MBPS, lab
from offline.scenarios.topologies import circuits_config, leaf_spine, optical
from signalbox.cli import app
from signalbox.jobs.collectives import check, virtual_links
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.live.jobs import wiring_line
from signalbox.models import PRESETS, Model, Parallelism, Preset
from signalbox.spec_files import jobs_in
from tests.support.doc_pages import PAGES, ROOT, Page
from tests.support.optical_fabric import OpticalFabric

FABRIC = leaf_spine(4, 4, 4, 5e6, 5e6)
"""The fabric of the lab, unless another one is given."""
JOBS = sorted({*(ROOT / "examples").glob("*.*")} - {ROOT / "examples" / "emulated.toml"})


def page_of(name: str) -> Page:
    return next(page for page in PAGES if page.name == f"docs/{name}.md")


def shown_first(page: str, language: str) -> str:
    return next(block.text for block in page_of(page).blocks if block.language == language)


def spec_in(job: Path) -> JobSpec:
    text = job.read_text()
    return JobSpec.parse(tomllib.loads(text) if job.suffix == ".toml" else json.loads(text))


def test_the_configuration_knows_the_rates_of_the_lab() -> None:
    fabric, options = load(ROOT / "examples" / "emulated.toml").fabric, inspect.signature(lab).parameters
    assert fabric.link_bps == options["fabric_mbps"].default * 1e6
    assert options["host_mbps"].default is None
    assert fabric.host_link_bps == RATE_MBPS * 1e6


def test_the_job_of_the_example_on_optical_switches_is_wired_as_the_page_says() -> None:
    given, job = ROOT / "examples/wiring/servers.toml", ROOT / "examples/wiring/small.yaml"
    written_by_lab = tomllib.loads(circuits_config(optical(5, 2, RATE_MBPS * 1e6)))
    assert tomllib.loads(given.read_text())["circuits"] == written_by_lab["circuits"]
    fabric, (small,) = OpticalFabric(5, 2), jobs_in(job)
    fabric.start(load(given))
    fabric.run(10)
    fabric.send(RegisterJob(small.spec))
    fabric.run(10)
    found = fabric.status.jobs[JobId("small")]
    assert found.state == "pinned"
    said = wiring_line(job_message(found, fabric.now))
    assert said in [block.text.strip() for block in page_of("wiring").blocks]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_example_jobs_are_jobs_of_the_labs_hosts(job: Path) -> None:
    spec = spec_in(job)
    assert check(spec) == []
    ips = {*spec.endpoints, *(ip for rail in spec.rails for ip in rail.endpoints)}
    assert ips <= {host.ip for host in FABRIC.hosts}


def test_the_example_jobs_share_no_pair() -> None:
    sent = {job.stem: virtual_links(spec_in(job)) for job in JOBS}
    assert {name: len(links) for name, links in sent.items()} == {
        "language": 8, "library": 4, "observed": 0, "rails": 8, "transfers": 5, "vision": 8,
    }  # fmt: skip
    pairs = [(v.src_ip, v.dst_ip) for links in sent.values() for v in links]
    assert len(pairs) == len(set(pairs))


def test_the_tutorial_shows_the_example_job_as_it_is_and_the_reference_a_right_one() -> None:
    shown = json.loads(shown_first("tutorial", "json"))
    assert shown == json.loads((ROOT / "examples/language.json").read_text())
    assert check(JobSpec.parse(json.loads(shown_first("reference/job-spec", "json")))) == []


GUIDE = page_of("how-to/announce-a-job")
IN_GUIDE = [block.text for block in GUIDE.blocks if block.language == "yaml"]
OF_REFERENCE = [block.text for block in page_of("reference/job-spec").blocks if block.language == "yaml"]
IN_PAGES = IN_GUIDE + [text for text in OF_REFERENCE if "parallelizations" in text]


@pytest.mark.parametrize("text", IN_PAGES, ids=range(len(IN_PAGES)))
def test_the_job_files_of_the_guide_and_of_parallelizations_are_jobs(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(text)
    found = [job.spec for job in jobs_in(tmp_path / "job.yaml")]
    assert all(spec.observed or spec.parallelizations or virtual_links(spec) for spec in found)
    assert len(found) == 1 + text.count("---\n")


def test_gpt_3_takes_ten_lines_and_is_checked_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (text,) = (text for text in IN_GUIDE if "gpt3-175b" in text)
    assert len(text.splitlines()) <= 10
    Path("gpt3.yaml").write_text(text)
    (block,) = (block.text for block in GUIDE.blocks if "jobs check gpt3.yaml" in block.text)
    line, _, shown = block.partition("\n")
    printed = printed_by([line.removeprefix("$ ")], "")
    assert [row.split() for row in printed.splitlines()] == [row.split() for row in shown.splitlines()]


@pytest.mark.parametrize("command", ["bandwidth", "placement"])
def test_a_design_is_as_its_page_shows(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = page_of("design")
    network, jobs = (block.text for block in page.blocks if block.language == "yaml")
    Path("network.yaml").write_text(network)
    Path("jobs.yaml").write_text(jobs)
    Path("gpt3.yaml").write_text(jobs.partition("---\n")[0])
    built = re.sub(r", cost_per_gbps: \d|, min_gbps: \d+", "", network).replace("}", ", gbps: 300}")
    Path("built.yaml").write_text(built)
    (block,) = (block.text for block in page.blocks if block.text.startswith(f"$ signalbox design {command}"))
    line, _, shown = block.partition("\n")
    printed = printed_by([line.removeprefix("$ ")], "")
    assert words_in_rows(printed) == words_in_rows(shown)


def test_the_fields_and_presets_of_models_are_those_of_the_reference() -> None:
    """The columns are layers, width, heads (of keys and values), inner width, vocabulary, tokens and batch."""
    page = page_of("reference/model-traffic")
    tables = page.text.partition("## Fields")[2].partition("| preset | layers")[0]
    cells = [line.split(" | ")[0] for line in tables.splitlines() if line.startswith("| `")]
    fields = (*Model.model_fields, *Parallelism.model_fields)
    assert [field for field in fields if not any(f"`{field}`" in cell for cell in cells)] == []
    for preset in Preset:
        (row,) = (line for line in page.text.splitlines() if line.startswith(f"| `{preset}` | "))
        shown = row.replace(",", "").replace(" 8 experts", "").split(" | ")[1:8]
        given = PRESETS[preset]
        model = Model.model_validate({"global_batch": 1, "preset": preset})
        heads = str(model.heads) + (f" ({model.kv_heads})" if model.kv_heads else "")
        widths = model.hidden, heads, model.ffn or 4 * model.hidden
        sizes = model.layers, *widths, model.vocabulary, model.sequence, given.get("global_batch", "–")
        assert shown == [str(size) for size in sizes]


def test_the_cable_that_the_tutorial_cuts_is_the_one_that_it_names() -> None:
    (cable,) = (cable for cable in FABRIC.cables if (cable.a, cable.b) == ("leaf1", "spine1"))
    assert cable.b_port == 1
    assert "ip link set spine1-eth1 down" in (ROOT / "docs/tutorial.md").read_text()


def test_the_planner_prints_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test skips times, and commands that take seconds."""
    monkeypatch.chdir(tmp_path)
    guide = page_of("how-to/plan-on-paper")
    (fabric,) = (line for line in guide.commands() if line.startswith("F="))
    (tmp_path / "jobs.yaml").write_text(shown_first("how-to/plan-on-paper", "yaml"))
    blocks = [block.text for block in guide.blocks if "generate-workload" in block.text or "planned in" in block.text]
    lines = [line.strip() for line in "".join(blocks).splitlines()]
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    printed = " ".join(printed_by(commands, fabric.partition("=")[2].strip('"')).split())
    shown = [line for line in lines if not line.startswith(("$ ", "planned in"))]
    assert len(shown) == 11
    assert [text for text in shown if " ".join(text.split()) not in printed] == []
    means = re.findall(r"mean of jobs\W+([\d.]+)", printed)
    (said,) = re.findall(
        r"mean slowdown is (\S+) under ECMP, (\S+) with\s+the published greedy, and (\S+) planned", guide.text
    )
    assert list(said) == [f"{float(mean):.2f}" for mean in means]


def words_in_rows(text: str) -> list[list[str]]:
    rows = [re.sub("[\u2500-\u257f]", " ", row).split() for row in text.splitlines()]
    return [row for row in rows if row]


def printed_by(commands: list[str], fabric: str) -> str:
    output = ""
    for line in commands:
        result = CliRunner().invoke(app, line.replace("$F", fabric).split()[1:])
        assert result.exit_code == 0, line
        output += result.output
    return output
