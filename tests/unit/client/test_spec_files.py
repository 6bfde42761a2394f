"""Job specs from files: formats, several jobs in one file, the places of problems, and short forms."""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.errors import InvalidInput
from signalbox.file_forms import job_in
from signalbox.jobs.collectives import virtual_links
from signalbox.jobs.spec import JobSpec
from signalbox.spec_files import jobs_in

SPEC: dict[str, Any] = {
    "job_id": "ring",
    "endpoints": ["10.0.1.1", "10.0.2.1"],
    "groups": [{"name": "dp", "ranks": [0, 1]}],
    "collectives": [{"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": 1000}],
}
ENDINGS = (".yaml", ".json", ".toml", "")
YAML = """\
job_id: ring
endpoints: [10.0.1.1, 10.0.2.1]
groups:
  - name: dp
    ranks: [0, 1]
collectives:
  - {algorithm: ring_all_reduce, groups: [dp], bytes_per_iteration: 1000}
"""
TOML = """\
# a comment
job_id = "ring"
endpoints = ["10.0.1.1", "10.0.2.1"]
groups = [{name = "dp", ranks = [0, 1]}]
collectives = [{algorithm = "ring_all_reduce", groups = ["dp"], bytes_per_iteration = 1000}]
"""


class Files:
    """Files of the test, and the specs and problems in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def specs(self, text: str | bytes, name: str = "job.yaml") -> list[JobSpec]:
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return [job.spec for job in jobs_in(path)]

    def problems(self, text: str | bytes, name: str = "job.yaml") -> list[str]:
        with pytest.raises(InvalidInput) as error:
            self.specs(text, name)
        return [str(problem).removeprefix(f"{self.folder}/") for problem in error.value.problems]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.parametrize(("name", "text"), [
    ("job.yaml", YAML), ("job.yml", YAML), ("job.json", json.dumps(SPEC)),
    ("job.json", "\ufeff" + json.dumps(SPEC, indent="\t")), ("job.yaml", json.dumps(SPEC)), ("job.toml", TOML),
    ("job", YAML), ("job", "---\n" + YAML), ("job", "\n" + json.dumps(SPEC)), ("job", TOML),
])  # fmt: skip
def test_the_same_spec_in_each_form(files: Files, name: str, text: str) -> None:
    assert files.specs(text, name) == [JobSpec.parse(SPEC)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jobs.yaml", YAML + "---\n" + YAML.replace("ring\n", "other\n")),
        ("jobs.yaml", json.dumps([SPEC, {**SPEC, "job_id": "other"}])),
        ("jobs.json", json.dumps([SPEC, {**SPEC, "job_id": "other"}])),
    ],
)
def test_a_file_may_have_several_jobs(files: Files, name: str, text: str) -> None:
    assert [spec.job_id for spec in files.specs(text, name)] == ["ring", "other"]


def test_problems_of_all_jobs_have_their_places(files: Files) -> None:
    wrong = YAML.replace("job_id: ring", "job_id: Ring\ncolor: blue").replace("1000", "0")
    assert files.problems(YAML + "---\n" + wrong) == [
        "job.yaml:9:1: job_id: must have 1 to 63 lower-case letters, digits, '.', '_' and '-', "
        "a letter or digit at both ends (given: 'Ring')",
        "job.yaml:10:1: color: unknown field; known are job_id, endpoints, groups, collectives, transfers, library, "
        "rails, max_subflows, transport, striping, reports_connections, lease_s, parallelizations, provisional, "
        "compute, gpus, work_per_iteration, weight, keeps_slots, hosts, ranks_per_host, model, parallelism",
        "job.yaml:16:48: collectives[0].bytes_per_iteration: must be at least 1 (given: 0)",
    ]
    listed = json.dumps([SPEC, {**SPEC, "groups": [{"name": "dp", "ranks": [0, 7]}]}], indent=1)
    line = listed.splitlines().index("     7") + 1
    message = "groups[0].ranks[1]: rank 7 has no endpoint; ranks go from 0 to 1"
    assert files.problems(listed, "jobs.json") == [f"jobs.json:{line}:6: {message}"]


@pytest.mark.parametrize(("text", "problem"), [
    (YAML.replace("10.0.2.1", "10.0.2.300"), "job.yaml:2:23: endpoints[1]: must be an IPv4 address such as"),
    (YAML.replace("[dp]", "[pp]"), "job.yaml:7:43: collectives[0].groups[0]: no group is called 'pp'; there are: dp"),
    (YAML + "reports_connections: no\n", "job.yaml:8:1: reports_connections: must be true or false (given: 'no')"),
    (YAML.replace("1000", "0x" + "f" * 5000), "job.yaml:7:69: a number of 5002 digits is too long"),
    (YAML.replace("job_id: ring\n", ""), "job.yaml:1:1: job_id: is missing"),
    (YAML + "endpoints: []\n", "job.yaml:8:1: 'endpoints' appears twice in one object, first in line 2"),
    (YAML.replace("endpoints", "   - endpoints"), "job.yaml:2:"),
    ("- 1\n- 2\n", "job.yaml:1:3: must be an object or table with the fields job_id, endpoints"),
    ("", "job.yaml: there is no job in this file"),
    (YAML + "---\n" + YAML, "job.yaml: 'ring' is the id of several jobs in this file"),
    (b"job_id: \xff", "job.yaml: is not text in UTF-8, at byte 9"),
])  # fmt: skip
def test_what_is_wrong_in_yaml_has_file_line_and_column(files: Files, text: str | bytes, problem: str) -> None:
    assert files.problems(text)[0].startswith(problem)


@pytest.mark.parametrize(("text", "problem"), [
    ('{"job_id": }', "job.json:1:12: not JSON: Expecting value"),
    ("{\n\t'job_id': 1}", "job.json:2:2: not JSON: Expecting property name enclosed in double quotes"),
    ('{\n\t"job_id": "a",\n\t"job_id": "b"\n}', "job.json:3:2: 'job_id' appears twice in one object, first in line 2"),
    ('{"job_id": ' + "9" * 5000 + "}", "job.json:1:12: a number of 5000 digits is too long"),
    ("[" * 100_000, "job.json: lists and objects are nested too deeply"),
    ('{\n\t"job_id": "\\ud83d\\ude00",\n\t"endpoints": 7}', "job.json:2:2: job_id: must have 1 to 63 lower-case"),
    ('{\n "job_id": "a\x7f",\n "endpoints": 7}', "job.json: job_id: must have 1 to 63 lower-case"),
    (json.dumps({**SPEC, "groups": [{"name": "\ud83d", "ranks": [0, 1]}]}),
     "job.json:1:71: groups[0].name: must be text w"),
    ('{"job_id": "a", "endpoints": NaN}', "job.json:1:17: endpoints: must be a list (given: nan)"),
])  # fmt: skip
def test_what_is_wrong_in_json_has_file_line_and_column(files: Files, text: str, problem: str) -> None:
    assert files.problems(text, "job.json")[0].startswith(problem)


def test_of_toml_syntax_has_a_place_and_fields_have_none(files: Files) -> None:
    assert files.problems("job_id = a", "job.toml") == ["job.toml:1:10: not TOML: Invalid value"]
    assert files.problems('job_id = "a"\nendpoints = [', "job.toml")[0].startswith("job.toml: not TOML: ")
    assert files.problems(TOML + 'color = "blue"', "job.toml")[0].startswith("job.toml: color: unknown field")
    nested = ".".join("a" * 30) + " = " + "[" * 10 + "]" * 10
    assert files.problems(nested, "job.toml") == ["job.toml: a: at most 32 lists and objects may be nested"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (".".join("a" * 60_000) + " = 1", "job.toml:1:1: a dotted key may have at most 32 parts"),
        ("\n[x]\n" + "  'a' . " * 40 + "b = 1", "job.toml:3:3: a dotted key may have at most 32 parts"),
        ("x = {" + "a." * 40 + "b = 1}", "job.toml:1:6: a dotted key may have at most 32 parts"),
        ("x = 0x" + "f" * 5000, "job.toml:1:5: a number of 5002 digits is too long"),
        ("# " + "a." * 40 + "\nx = '''\n" + "a." * 40 + "\n'''", "job.toml: x: unknown field"),
        ("x = " + "[" * 5000, "job.toml: not TOML: "),
    ],
)
def test_toml_has_limits_before_it_is_parsed(files: Files, text: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in files.problems(text, "job.toml"))


PARTS = [*YAML.splitlines(keepends=True), *TOML.splitlines(keepends=True), *json.dumps(SPEC).split(" ")]
PARTS += ["model: llama2-70b\n", "hosts: 10.0.0.1-4\n", "parallelism: {tensor: 4}\n", "rails:\n- hosts: 10.1.0.1-4\n"]
PARTS += [*"[]{}'\"#~\t\0", *("- ", ": ", "&a ", "*a", "? ", "---\n", "1e999", "!!x ", '"\\ud83d"')]
PARTS += ["9" * 5000, "[" * 2000]


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=2), max_size=12).map("".join), st.sampled_from(ENDINGS))
def test_any_text_is_a_job_or_an_error_in_our_words(text: str, ending: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"job{ending}"
        path.write_text(text, errors="surrogatepass")
        problems: list[str] = []
        try:
            found = jobs_in(path)
        except InvalidInput as error:
            problems = [str(problem) for problem in error.problems]
    assert problems or found
    for problem in problems:
        assert problem.startswith(str(path))
        assert not re.search("[Ii]nput should|[Ii]nput is|pydantic", problem)


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("64 MiB", 64 << 20), ("2GB", 2_000_000_000), ("1 kB", 1000), ("3 KiB", 3072), ("1 TB", 10**12), ("1e9", 10**9)],
)
def test_bytes_may_have_a_unit(files: Files, text: str, bytes_: int) -> None:
    (spec,) = files.specs(YAML.replace("1000", text))
    assert spec.collectives[0].bytes_per_iteration == bytes_


@pytest.mark.parametrize("text", ["'64'", "64 mb", "64 Mbit", "-1 MB", "1.5 GB", "many", "99999 TB", "true"])
def test_other_text_is_no_number_of_bytes(files: Files, text: str) -> None:
    (problem,) = files.problems(YAML.replace("1000", text))
    at = "job.yaml:7:48: collectives[0].bytes_per_iteration: must be "
    units = f"{at}a number of bytes, or a whole number with kB to TB or KiB to TiB, such as '64 MiB' (given: "
    assert problem.startswith((units, f"{at}at most"))


def test_what_the_controller_finds_wrong_has_a_place_and_a_file_that_cannot_be_read_a_name(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(YAML)
    (job,) = jobs_in(path)
    with pytest.raises(InvalidInput) as error, job.errors_placed():
        raise InvalidInput.of("collectives[0].groups", "the pair is another job's")
    assert str(error.value) == f"{path}:7:34: collectives[0].groups: the pair is another job's"
    with pytest.raises(InvalidInput, match=r"none\.yaml: No such file"):
        jobs_in(tmp_path / "none.yaml")


OBSERVED: dict[str, Any] = {"job_id": "a", "hosts": "10.0.1-2.1-2"}
MODEL = {"layers": 4, "hidden": 64, "heads": 4, "vocabulary": 100, "sequence": 8, "global_batch": 8}
ADDRESSES = "must be IPv4 addresses such as 10.0.1.2, 10.0.1.1-8 or 10.0.1-4.1-8"


def problems(**job: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as error:
        job_in({"job_id": "a", **job})
    return {problem.path: problem.message for problem in error.value.problems}


def test_hosts_with_ranges_stand_for_their_ranks_with_all_nics() -> None:
    assert job_in(OBSERVED).endpoints == ("10.0.1.1", "10.0.1.2", "10.0.2.1", "10.0.2.2")
    assert job_in({**OBSERVED, "hosts": ["10.0.9.9", "10.0.1.1-2"]}).endpoints == ("10.0.9.9", "10.0.1.1", "10.0.1.2")
    spec = job_in({**OBSERVED, "hosts": "10.0.1.1-2", "ranks_per_host": 2, "rails": [{"hosts": "10.1.1.1-2"}]})
    assert spec.endpoints == ("10.0.1.1", "10.0.1.1", "10.0.1.2", "10.0.1.2")
    assert [rail.endpoints for rail in spec.rails] == [("10.1.1.1", "10.1.1.1", "10.1.1.2", "10.1.1.2")]


def test_a_spec_without_short_forms_is_the_same_spec_and_a_model_stands_for_one() -> None:
    hosts = {"endpoints": ["10.0.1.1", "10.0.2.1"], "rails": [{"endpoints": ["10.1.1.1", "10.1.2.1"]}]}
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 5}]
    plain = {"job_id": "a", **hosts, "transfers": transfers, "library": "gloo", "lease_s": 3600}
    assert job_in(plain) == JobSpec.parse(plain)
    spec = job_in({**OBSERVED, "model": MODEL, "parallelism": {"pipeline": 2}, "max_subflows": 4})
    again = job_in(spec.model_dump(mode="json", exclude_defaults=True))
    assert again == spec
    assert virtual_links(again)
    assert spec.max_subflows == 4


@pytest.mark.parametrize(("job", "path", "message"), [
    ({}, "endpoints", "is missing: give endpoints (the address of each rank) or hosts"),
    ({**OBSERVED, "endpoints": ["10.0.1.1", "10.0.1.2"]}, "hosts", "give hosts or endpoints, not both"),
    ({"hosts": "10.0.1.1"}, "hosts", "must have at least 2 entries (given: 1)"),
    ({"hosts": "10.0.1.1,10.0.2.1"}, "hosts[0]", f"{ADDRESSES}; several are a list, [10.0.1.1, 10.0.2.1]"),
    ({"hosts": ["node1", "node2"]}, "hosts[1]", f"{ADDRESSES}; only signalbox run --hosts and"),
    ({"hosts": "10.0.1.3-1"}, "hosts[0]", "must be IPv4 addresses such as"),
    ({"hosts": "10.0.1.01-2"}, "hosts[0]", "must be IPv4 addresses such as"),
    ({"hosts": "10.0.1.250-256"}, "hosts[0]", "must be IPv4 addresses such as"),
    ({"hosts": ["10.0.1.1", 7]}, "hosts[1]", "must be text (given: 7)"),
    ({"hosts": "127.0.0.1-2"}, "hosts",
     "endpoints[1]: must be the address of a host, not loopback, multicast or reserved (given: '127.0.0.2')"),
    ({"hosts": ["10.0.1.1-2", "10.0.1.2"]}, "hosts", "10.0.1.2 appears 2 times; list a host once, with ranks_per"),
    ({"hosts": "10.0-255.0-255.1"}, "hosts", "at most 4096 hosts are allowed (given: 65536)"),
    ({"hosts": "10.0.0-3.1-255", "ranks_per_host": 8}, "hosts", "at most 4096 ranks are allowed (given: 1020 hosts "),
    ({"ranks_per_host": 2, "endpoints": ["10.0.1.1"] * 2}, "ranks_per_host", "is only for jobs with hosts"),
    ({**OBSERVED, "rails": [{"hosts": "10.1.1.1"}]}, "rails[0].hosts", "one address per host is needed: 4 (given: 1)"),
    ({**OBSERVED, "rails": [{}]}, "rails[0]", "give either endpoints or hosts"),
    ({**OBSERVED, "rails": [{"hosts": "10.0.1.1-4"}]}, "rails[0].hosts", "10.0.1.1 is also in endpoints"),
    ({"endpoints": ["10.0.1.1", "10.0.2.1"], "rails": [{"hosts": "10.1.1.1-2"}]}, "rails[0].hosts",
     "is for jobs with hosts; give endpoints, an address per rank"),
    ({**OBSERVED, "parallelism": {"tensor": 2}}, "parallelism",
     "describes how a model is divided: give a model too, or omit it"),
    ({**OBSERVED, "model": MODEL, "groups": []}, "groups", "cannot be combined with a model"),
    ({**OBSERVED, "model": MODEL, "library": "openmpi"}, "library", "must not be openmpi with a model"),
    ({**OBSERVED, "model": {**MODEL, "width": 3}}, "model.width", "unknown field; known are preset, layers, hidden"),
    ({**OBSERVED, "model": "gpt4"}, "model.preset", "must be 'gpt3-175b', 'llama2-70b', "),
    ({**OBSERVED, "model": MODEL, "parallelism": {"zero": 2}}, "parallelism.zero", "must be 0, 1 or 3 (given: 2)"),
    ({**OBSERVED, "model": {**MODEL, "micro_batch": 4}}, "model.global_batch",
     "must be a multiple of 16: data 4 x micro"),
    ({**OBSERVED, "model": MODEL, "parallelism": {"tensor": 3}}, "parallelism",
     "tensor 3 x pipeline 1: a multiple of 3 ranks"),
])  # fmt: skip
def test_what_is_wrong_is_told_as_it_was_given(job: dict[str, Any], path: str, message: str) -> None:
    found = problems(**job)
    assert path in found
    assert found[path].startswith(message)


def test_limits_of_a_spec_are_those_of_the_model_too() -> None:
    """The job has 4,096 ranks with 8 NICs."""
    rails = [{"hosts": f"10.{rail}.0-1.0-255"} for rail in range(1, 8)]
    job = {"hosts": "10.0.0-1.0-255", "ranks_per_host": 8, "rails": rails, "model": {**MODEL, "global_batch": 2048}}
    (message,) = problems(**job, parallelism={"pipeline": 4}).values()
    assert message.endswith("rails make 98304 virtual links; at most 65536 are allowed")
    job_in({"job_id": "a", **job, "rails": [], "parallelism": {"pipeline": 2}})


OFFER: dict[str, Any] = {
    **OBSERVED,
    "library": "nccl",
    "parallelizations": [
        {"name": "by model", "model": MODEL, "parallelism": {"pipeline": 2}, "compute": [{"seconds": 2}]},
        {"name": "by hand", "transfers": [{"src": 0, "dst": 1, "bytes_per_iteration": "2 kB"}]},
    ],
}


def ways(**changes: Any) -> list[dict[str, Any]]:
    first, second = OFFER["parallelizations"]
    return [first, {**second, **changes}]


def test_each_parallelization_has_short_forms_of_its_own() -> None:
    spec = job_in({**OFFER, "max_subflows": 4})
    model = {"model": MODEL, "parallelism": {"pipeline": 2}}
    assert spec.of_parallelization("by model") == job_in({**OBSERVED, **model, "library": "nccl", "max_subflows": 4})
    assert spec.of_parallelization("by hand").transfers[0].bytes_per_iteration == 2000
    assert [len(way.compute) for way in spec.parallelizations] == [1, 0]
    plain = spec.model_dump(mode="json", exclude_defaults=True)
    assert plain.keys() == {"job_id", "endpoints", "library", "max_subflows", "parallelizations"}
    assert JobSpec.parse(plain) == job_in(plain) == spec


@pytest.mark.parametrize(("changes", "path", "message"), [
    ({"model": MODEL}, "parallelizations[1].transfers", "cannot be combined with a model"),
    ({"name": "by model"}, "parallelizations[1].name", "'by model' is the name of several"),
    ({"transfers": []}, "parallelizations[1]", "has no traffic: give a model, collectives or transfers"),
    ({"transfers": [{"src": 0, "dst": 4, "bytes_per_iteration": 1}]}, "parallelizations[1].transfers[0].dst",
     "rank 4 has no endpoint"),
])  # fmt: skip
def test_what_is_wrong_in_a_parallelization_is_told_as_it_was_given(
    changes: dict[str, Any], path: str, message: str
) -> None:
    found = problems(**{**OFFER, "parallelizations": ways(**changes)})
    assert list(found) == ([path] if "several" not in message else ["parallelizations[0].name", path])
    assert found[path].startswith(message)


def test_what_is_wrong_with_all_parallelizations_alike_is_told_once() -> None:
    both = [OFFER["parallelizations"][0], {**OFFER["parallelizations"][0], "name": "again"}]
    assert problems(**{**OFFER, "hosts": "127.0.0.1-4", "parallelizations": ways()}).keys() == {"hosts"}
    assert problems(**{**OFFER, "library": "openmpi", "parallelizations": both}).keys() == {"library"}
    assert problems(parallelizations=ways()) == {
        "endpoints": "is missing: give endpoints (the address of each rank) or hosts"
    }
    told = "cannot be combined with parallelizations, each of which has its own: omit one of them"
    assert problems(**OFFER, groups=[], parallelism={}) == {"groups": told, "parallelism": told}
