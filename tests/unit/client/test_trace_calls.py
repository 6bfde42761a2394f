"""Calls of ranks that become the traffic of an iteration, from NCCL logs and from options of the command."""

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
from signalbox.traces.calls import Amount, Call, Kind, per_iteration
from tests.support.doc_pages import PAGES
from tests.unit.client import test_chakra as et
from tests.unit.client.test_flight_recorder import PICKLES
from tests.unit.client.test_nccl_logs import everyone, of_rank

A, B, C = (Kind("all_reduce", (0, 1), name) for name in "abc")


def calls(text: str, sizes: dict[str, int] | None = None) -> list[Call]:
    """Return a call per letter, of 1 byte where ``sizes`` has no size."""
    return [Call(Kind("all_reduce", (0, 1), letter), (sizes or {}).get(letter, 1)) for letter in text]


def both(text: str, iterations: int | None = None) -> dict[Kind, Amount]:
    return per_iteration({0: calls(text), 1: calls(text)}, iterations)


@pytest.mark.parametrize(("text", "counts"), [
    ("aabaabaab", {"a": 2, "b": 1}),
    ("xyzaabcaabcaabcaabc", {"a": 2, "b": 1, "c": 1}),
    ("aaaaaa", {"a": 1}),
    ("bcabcabcabca", {"a": 1, "b": 1, "c": 1}),
    ("abcabcabcabcz", {"a": 1, "b": 1, "c": 1}),
], ids=["from the start", "after a start", "one call", "begun and ended within one", "before an end"])  # fmt: skip
def test_the_iteration_is_what_repeats(text: str, counts: dict[str, int]) -> None:
    assert {kind.tag: amount.bytes for kind, amount in both(text).items()} == counts


def test_calls_that_do_not_repeat_are_refused_unless_the_number_of_iterations_is_given() -> None:
    with pytest.raises(InvalidInput, match=r"rank 0: the 4 calls of the rank do not repeat.*--iterations"):
        both("abcd")
    with pytest.raises(InvalidInput, match="do not repeat"):
        both("abcdefghaa")
    assert {kind.tag: amount.bytes for kind, amount in both("abaab", 2).items()} == {"a": 2, "b": 1}


def test_calls_that_alternate_or_begin_while_another_is_under_way_share_a_phase() -> None:
    """The calls b and c begin before the previous call has ended; d begins when all have ended."""
    found = both("abacc" * 3)
    assert {kind.tag: amount.phase for kind, amount in found.items()} == {"a": 0, "b": 0, "c": 1}
    assert list(found) == [A, B, C]
    made = [Call(kind, 8, overlaps) for kind, overlaps in ((A, False), (B, True), (C, True))]
    last = Call(Kind("all_reduce", (0, 1), "d"), 8)
    found = per_iteration({rank: [*made, last] * 2 for rank in (0, 1)}, 2)
    assert [amount.phase for amount in found.values()] == [0, 0, 0, 1]


def test_phases_agree_between_ranks_of_which_none_sees_all() -> None:
    first, second, last = Kind("send", (0, 1)), Kind("send", (1, 2)), Kind("all_reduce", (0, 1, 2))
    traces = {0: [first, last], 1: [first, second, last], 2: [second, last]}
    found = per_iteration({rank: [Call(kind, 8) for kind in kinds * 2] for rank, kinds in traces.items()})
    assert {kind: amount.phase for kind, amount in found.items()} == {first: 0, second: 1, last: 2}


def test_what_overlaps_on_one_rank_does_on_the_others_and_a_contradictory_order_is_one_phase() -> None:
    overlapping = [Call(A, 1), Call(B, 1, overlaps=True), Call(C, 1)] * 2
    others = [Call(A, 1), Call(B, 1), Call(C, 1)] * 2
    for ranks in ((overlapping, others), (others, overlapping)):
        found = per_iteration(dict(enumerate(ranks)), 2)
        assert {kind: amount.phase for kind, amount in found.items()} == {A: 0, B: 0, C: 1}
    found = per_iteration({0: calls("ab" * 3), 1: calls("ba" * 3)})
    assert {amount.phase for amount in found.values()} == {0}


def test_ranks_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(
        InvalidInput, match="rank 1: sends 7 bytes per iteration in all_reduce of ranks 0, 1, but rank 0 sends"
    ):
        per_iteration({0: calls("aa"), 1: calls("aa", {"a": 7})})
    with pytest.raises(InvalidInput, match="rank 1: made no all_reduce of ranks 0, 1, but rank 0 did"):
        per_iteration({0: calls("aa"), 1: []})


def test_long_traces_take_linear_time() -> None:
    """A rank without a trace does what the others do."""
    assert per_iteration({0: calls("b" + "a" * 60_000)}) == {A: Amount(1, 0)}


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
    (
        "signalbox jobs from chakra --spec list.yaml trace.0.et",
        "list.yaml: must be one object with fields of a job spec",
    ),
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
