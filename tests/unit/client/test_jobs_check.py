"""``signalbox jobs check``, and files with several jobs."""

import json
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


def test_it_says_what_a_job_is(signalbox: Signalbox, file: Path) -> None:
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


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("job", [GPT_3, OFFER], ids=["model", "parallelizations"])
def test_what_a_model_or_a_parallelization_stands_for_can_be_kept(
    signalbox: Signalbox, file: Path, job: str, form: str
) -> None:
    file.write_text(job)
    long = file.with_name(f"long.{form}")
    long.write_text(signalbox("jobs", "check", file, "-o", form).out)
    assert signalbox("jobs", "check", long).out == signalbox("jobs", "check", file).out
    assert signalbox("jobs", "check", long, "-o", form).out == long.read_text()


def test_a_job_of_endpoints_only_is_learnt(signalbox: Signalbox) -> None:
    result = signalbox("jobs", "check", "examples/observed.json")
    assert "nothing, the job is observed" in result.text
    assert "learnt from what switches count" in result.text


def test_all_that_is_wrong_is_a_line_each(signalbox: Signalbox, file: Path) -> None:
    file.write_text(GPT_3.replace("tensor: 8", "tensor: 5") + "color: blue\n---\n" + RING.replace("1000", "0"))
    result = signalbox("jobs", "check", file)
    assert (result.status, result.out) == (1, "")
    places = [":".join(line.removeprefix(f"error: {file}:").split(":")[:2]) for line in result.err.splitlines()]
    assert places == ["7:1", "11:30"]


def test_names_of_hosts_are_refused_with_where_they_are_taken(signalbox: Signalbox, file: Path) -> None:
    file.write_text(GPT_3.replace("10.0.0.1-32", "n[1-32]"))
    said = signalbox("jobs", "check", file).err
    assert "only signalbox run --hosts and signalbox jobs keep look names up (given: 'n[1-32]')" in said
    file.write_text(GPT_3.replace("10.0.0.1-32", "10.0.0.1-"))
    assert "look names up" not in signalbox("jobs", "check", file).err


def test_sums_that_only_virtual_links_show_are_refused_without_a_controller(signalbox: Signalbox, file: Path) -> None:
    everyone = {"name": "all", "ranks": [*range(300)]}
    spec = {"job_id": "a", "hosts": "10.0.1-2.1-150", "groups": [everyone]}
    spec["collectives"] = [{"algorithm": "all_to_all", "groups": ["all"], "bytes_per_iteration": 1000}]
    file.write_text(json.dumps(spec))
    result = signalbox("jobs", "check", file)
    message = "collectives: the collectives make 89700 virtual links; at most 65536 are allowed"
    assert (result.status, result.err.split(": ", 2)[2]) == (1, message + "\n")


@pytest.mark.parametrize("form", ["table", "yaml"])
def test_so_are_sums_beyond_64_bits(signalbox: Signalbox, file: Path, form: str) -> None:
    """The first host sends 2^50 bytes to the second host 8,192 times."""
    names = [f"g{n}" for n in range(4096)]
    much = {"algorithm": "pipeline_send", "groups": names, "bytes_per_iteration": 1 << 50}
    groups = [{"name": name, "ranks": [0, 1]} for name in names]
    spec = {"job_id": "a", "hosts": "10.0.1.1-2", "groups": groups, "collectives": [much, {**much, "phase": 1}]}
    file.write_text(json.dumps(spec))
    result = signalbox("jobs", "check", file, "-o", form)
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith(f"error: {file}:1:{file.read_text().index('collectives')}: collectives: the job sends")


@pytest.mark.usefixtures("api")
def test_what_a_model_stands_for_is_the_same_job(signalbox: Signalbox, file: Path) -> None:
    file.write_text(GPT_3)
    assert signalbox("jobs", "register", file, "--json").json["virtual_links"] == 96
    long = file.with_name("long.yaml")
    long.write_text(signalbox("jobs", "check", file, "-o", "yaml").out)
    assert signalbox("jobs", "register", long).status == 0, "another spec would be refused"


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


def test_parallelizations_may_be_in_toml(signalbox: Signalbox, file: Path) -> None:
    toml = file.with_name("offer.toml")
    toml.write_text(
        'job_id = "offer"\nhosts = ["10.0.0.1-4"]\n[[parallelizations]]\nname = "by hand"\n'
        "[[parallelizations.transfers]]\nsrc = 0\ndst = 1\nbytes_per_iteration = 1000\n"
    )
    (way,) = signalbox("jobs", "check", toml, "--json").json["parallelizations"]
    assert way == {"name": "by hand", "transfers": [{"src": 0, "dst": 1, "bytes_per_iteration": 1000}]}


def test_what_is_wrong_with_a_parallelization_has_its_place_in_the_file(signalbox: Signalbox, file: Path) -> None:
    file.write_text(OFFER.replace("groups: [all]", "groups: [none]").replace("dst: 1", "dst: 0"))
    assert signalbox("jobs", "check", file).err.splitlines() == [
        f"error: {file}:6:52: parallelizations[0].collectives[0].groups[0]: no group is called 'none'; there are: all",
        f"error: {file}:9:26: parallelizations[1].transfers[0].dst: rank 0 sends to itself",
    ]
