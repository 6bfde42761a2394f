"""``signalbox jobs from``, with the commands of its guide."""

import json
import pickle
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from signalbox.cli import app
from signalbox.errors import InvalidInput
from signalbox.jobs.collectives import virtual_links
from signalbox.jobs.spec import JobSpec
from tests.support.doc_pages import PAGES
from tests.unit.client import test_chakra as et
from tests.unit.client.test_flight_recorder import PICKLES
from tests.unit.client.test_nccl_logs import everyone, of_rank

GUIDE = next(page for page in PAGES if page.name == "docs/how-to/job-spec-from-traces.md")


@pytest.fixture(autouse=True)
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the files that the guide names, and return their folder."""
    monkeypatch.chdir(tmp_path)
    Path("job.log").write_text("\n".join(everyone()))
    Path("vision.yaml").write_text(next(block.text for block in GUIDE.blocks if block.language == "yaml"))
    for rank in range(4):
        Path(f"rank_{rank}.json").write_text(json.dumps(pickle.loads(PICKLES[rank].read_bytes())))
        group = et.attribute("pg_name", et.STRING, b"12"[rank // 2 : rank // 2 + 1])
        calls = [et.collective(number, 0, 100, *([group] if number % 2 else [])) for number in range(20)]
        Path(f"trace.{rank}.et").write_bytes(et.trace(*calls))
    return tmp_path


def run(line: str, given: bytes = b"") -> tuple[int, str, str]:
    """Run a line of a shell; return its exit status, output and error output."""
    words = shlex.split(line.partition(">")[0])[1:]
    files = [sorted(map(str, Path().glob(word))) if "*" in word else [word] for word in words]
    done = CliRunner().invoke(app, [word for of_word in files for word in of_word], input=given)
    if isinstance(done.exception, InvalidInput):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


COMMANDS = [line for line in GUIDE.commands() if line.startswith("signalbox jobs from")]


@pytest.mark.parametrize("line", COMMANDS)
def test_the_guides_commands_print_specs_that_can_be_registered(line: str) -> None:
    status, printed, said = run(line)
    assert (status, said) == (0, "")
    spec = JobSpec.parse(json.loads(printed))
    assert (spec.job_id, len(spec.endpoints)) == ("vision", 4)
    assert virtual_links(spec)


def test_there_is_a_command_for_every_format_and_chakra_has_the_groups_of_the_guide() -> None:
    assert [line.split()[3] for line in COMMANDS] == ["nccl", "flight-recorder", "chakra"]
    spec = JobSpec.parse(json.loads(run(COMMANDS[2])[1]))
    assert {group.name: group.ranks for group in spec.groups} == {"all": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3)}
    assert [(c.groups, c.bytes_per_iteration) for c in spec.collectives] == [(("all",), 100), (("1", "2"), 100)]


def test_a_trace_and_what_it_does_not_say_may_come_from_standard_input() -> None:
    printed = run("signalbox jobs from nccl --job-id vision -", Path("job.log").read_bytes())[1]
    assert printed == run("signalbox jobs from nccl --job-id vision job.log")[1]
    assert '\n    {"src": 0, "dst": 1, "bytes_per_iteration": 3000},\n' in printed, "a line for each transfer"
    given = json.dumps({"job_id": "vision", "lease_s": 9}).encode()
    assert '"lease_s": 9' in run("signalbox jobs from nccl --spec - job.log", given)[1]
    assert run("signalbox jobs from nccl --spec - -")[0] == 2
    assert run("signalbox jobs from chakra --bytes 9 --spec vision.yaml trace.0.et")[0] == 2, "for logs of NCCL only"


def test_a_log_without_calls_makes_an_observed_job_and_says_so() -> None:
    Path("job.log").write_text("\n".join(everyone(lambda rank: of_rank(rank, calls=0))))
    status, printed, said = run("signalbox jobs from nccl --job-id vision job.log")
    assert (status, JobSpec.parse(json.loads(printed)).observed) == (0, True)
    assert "switches will measure the job's traffic" in said


@pytest.mark.parametrize(("line", "message"), [
    ("signalbox jobs from nccl job.log", "job_id: is missing; --job-id gives it"),
    ("signalbox jobs from chakra --job-id a trace.0.et", "endpoints: is missing; --endpoints gives the address"),
    ("signalbox jobs from chakra --spec traffic.yaml trace.0.et", "traffic.yaml:1:1: transfers: comes from the trace"),
    ("signalbox jobs from chakra --spec offer.yaml trace.0.et",
     "offer.yaml:2:1: parallelizations: comes from the trace; leave it out"),
    ("signalbox jobs from chakra --spec alias.yaml trace.0.et", "alias.yaml:1:1: a: unknown field"),
    ("signalbox jobs from chakra --spec broken.yaml trace.0.et", "broken.yaml:2:1: not YAML"),
    ("signalbox jobs from chakra --spec list.yaml trace.0.et", "list.yaml: must have the fields of a job spec"),
])  # fmt: skip
def test_what_is_missing_or_wrong_is_said(line: str, message: str) -> None:
    for name, text in {
        "traffic": "transfers: []",
        "offer": "library: nccl\nparallelizations: []",
        "alias": "a: &a [1]\nb: *a",
        "broken": "a: [",
        "list": "- a",
    }.items():
        Path(f"{name}.yaml").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        run(line)
