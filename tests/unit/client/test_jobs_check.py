"""``signalbox jobs check``, and files with several jobs."""

from pathlib import Path

import pytest

from tests.support.command_line import Signalbox, api, signalbox
from tests.support.wire.control_stand_in import H1, H2

__all__ = ("api", "signalbox")

GPT_3 = """\
job_id: gpt3
hosts: 10.0.0.1-32
ranks_per_host: 8
model: gpt3-175b
parallelism: {tensor: 8, pipeline: 8, data: 4, sequence_parallel: true}
library: nccl
"""
OFFER = """\
job_id: offer
hosts: 10.0.0.1-4
parallelizations:
  - name: replicas
    groups: [{name: all, ranks: [0, 1, 2, 3]}]
    collectives: [{algorithm: all_reduce, groups: [all], bytes_per_iteration: 2 MB, phase: 3}]
    compute: [{seconds: 0.25}, {seconds: 0.5, phase: 3}]
  - name: by hand
    transfers: [{src: 0, dst: 1, bytes_per_iteration: 1000}]
"""
RING = f"""\
job_id: ring
endpoints: [{H1}, {H2}]
transfers: [{{src: 0, dst: 1, bytes_per_iteration: 1000}}]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "job.yaml"


def test_it_says_what_a_job_is_or_that_it_is_learnt(signalbox: Signalbox, file: Path) -> None:
    """The job is a model with pipeline stages and replicas.

    A host's 8 ranks send 2·3/4 of 10,937,500,000 bytes each to the next replica. In the middle of a pipeline, each rank
    sends 1,536/4 · 2,048 · 12,288 · 2 / 8 bytes to both neighbours."""
    file.write_text(GPT_3)
    result = signalbox("jobs", "check", file)
    facts = {line[:21].strip(): line[21:].strip() for line in result.out.splitlines()}
    assert (result.status, result.err) == (0, "")
    assert facts["ranks"] == "256 on 32 hosts"
    assert facts["groups"] == "96"
    assert facts["virtual links"] == "96, between 96 pairs of addresses, in 2 phases"
    most = 8 * (16_406_250_000 + 2 * 384 * 2048 * 12_288 * 2 // 8)
    assert facts["largest sender"].endswith(f", {most:,} bytes per iteration")
    assert ["0", "transfer", "2,415,919,104", "448", "2"] in result.rows
    assert ["1", "all", "reduce", "10,937,500,000", "64", "4"] in result.rows
    result = signalbox("jobs", "check", "examples/observed.json")
    assert "nothing, the job is observed" in result.text
    assert "learnt from what switches count" in result.text


@pytest.mark.parametrize(("job", "form"), [(GPT_3, "json"), (OFFER, "yaml")], ids=["model", "parallelizations"])
def test_what_a_model_or_a_parallelization_stands_for_can_be_kept(
    signalbox: Signalbox, file: Path, job: str, form: str
) -> None:
    file.write_text(job)
    long = file.with_name(f"long.{form}")
    long.write_text(signalbox("jobs", "check", file, "-o", form).out)
    assert signalbox("jobs", "check", long).out == signalbox("jobs", "check", file).out
    assert signalbox("jobs", "check", long, "-o", form).out == long.read_text()


def test_all_that_is_wrong_is_a_line_each(signalbox: Signalbox, file: Path) -> None:
    offer = OFFER.replace("dst: 1", "dst: 0")
    file.write_text(GPT_3.replace("tensor: 8", "tensor: 5") + "color: blue\n---\n" + offer)
    result = signalbox("jobs", "check", file)
    assert (result.status, result.out) == (1, "")
    places = [":".join(line.removeprefix(f"error: {file}:").split(":")[:2]) for line in result.err.splitlines()]
    assert places == ["7:1", "17:26"]


def test_sums_that_only_virtual_links_show_are_refused_without_a_controller(
    signalbox: Signalbox, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signalbox.jobs.collectives.MAX_JOB_BYTES", 999)
    file.write_text(RING)
    for form in ("table", "yaml"):
        result = signalbox("jobs", "check", file, "-o", form)
        assert (result.status, result.out) == (1, "")
        assert result.err.startswith(f"error: {file}:3:1: transfers: the job sends 1000 bytes")


@pytest.mark.usefixtures("api")
def test_several_jobs_are_registered_one_after_the_other(signalbox: Signalbox, file: Path) -> None:
    other = RING.replace("ring", "other").replace("src: 0, dst: 1", "src: 1, dst: 0")
    file.write_text(f"{RING}---\n{other}")
    assert [spec["job_id"] for spec in signalbox("jobs", "check", file, "--json").json] == ["ring", "other"]
    registered = signalbox("jobs", "register", file, "-o", "yaml")
    assert [job["spec"]["job_id"] for job in registered.yaml] == ["ring", "other"]
    assert signalbox("jobs", "register", file).status == 0, "renews both leases"
    assert [job["spec"]["job_id"] for job in signalbox("jobs", "list", "--json").json["jobs"]] == ["other", "ring"]


@pytest.mark.usefixtures("api")
def test_of_several_jobs_those_that_are_done_are_named(signalbox: Signalbox, file: Path) -> None:
    taken = RING.replace("ring", "taken").replace("src: 0, dst: 1", "src: 1, dst: 0")
    file.write_text(taken)
    assert signalbox("jobs", "register", file).status == 0
    file.write_text(f"{RING}---\n{taken.replace('1000', '2000')}")
    result = signalbox("jobs", "register", file)
    assert (result.status, result.out) == (8, "")
    assert result.err.startswith(
        "registered: ring; not the other jobs\nerror: job 'taken' is registered with another spec"
    )


def test_each_parallelization_of_a_job_is_checked_and_told(signalbox: Signalbox, file: Path) -> None:
    file.write_text(OFFER)
    result = signalbox("jobs", "check", file)
    assert (result.status, result.err) == (0, "")
    assert "announced 2 parallelizations (library: generic)" in result.text
    assert ["replicas", "3", "all", "reduce", "2,000,000", "1", "4"] in result.rows
    assert ["by", "hand", "0", "transfer", "1,000", "1", "2"] in result.rows
    (replicas,) = (line for line in result.out.splitlines() if line.startswith("replicas") and "pairs" in line)
    assert "4, between 4 pairs of addresses, in 1 phase" in " ".join(replicas.split())
    assert "12,000,000" in replicas
    assert replicas.split()[-1] == "0.75"
    (by_hand,) = (line for line in result.out.splitlines() if line.startswith("by hand") and "pair " in line)
    assert by_hand.split()[-1] == "-"
