"""Addresses of listeners, and commands that need no controller: the check of job specs, and trees for Slurm."""

from pathlib import Path

import pytest
from pydantic_core import PydanticCustomError

from signalbox.addresses import MAX_ADDRESSES, api_addresses
from signalbox.commands.get import NoTree, TreeSwitch, refuse_circuits, topology_conf, tree
from signalbox.credentials import Credentials
from signalbox.errors import InvalidInput
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
        "registered: ring; the others are not\nerror: job 'taken' is registered with another spec"
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


@pytest.mark.parametrize(("text", "addresses"), [
    ("127.0.0.1:50051", ("127.0.0.1:50051",)),
    ("unix:/run/api.sock", ("unix:/run/api.sock",)),
    ("unix:/run/a,b", ("unix:/run/a,b",)),
    ("one:1,two:1", ("one:1", "two:1")),
    ("one:1,one:2", ("one:1", "one:2")),
    ("[::1]:1,[::2]:1,10.0.0.1:1", ("[::1]:1", "[::2]:1", "10.0.0.1:1")),
    (",".join(f"h{n}:1" for n in range(MAX_ADDRESSES)), tuple(f"h{n}:1" for n in range(MAX_ADDRESSES))),
])  # fmt: skip
def test_one_address_or_a_list(text: str, addresses: tuple[str, ...]) -> None:
    assert api_addresses(text) == addresses


@pytest.mark.parametrize(("text", "problem"), [
    ("one:1,,two:1", "address 2 of 3 is empty"),
    ("one:1,", "address 2 of 2 is empty"),
    (",", "address 1 of 2 is empty"),
    ("one:1,two", "address 2 of 2 ('two') is not HOST:PORT with a port up to 65535"),
    ("one:1,two:65536", "address 2 of 2 ('two:65536') is not HOST:PORT with a port up to 65535"),
    ("one:1, two:1", "address 2 of 2 (' two:1') has a space"),
    ("one:1,two:1,ONE:1", "address 3 of 3 ('ONE:1') appears twice"),
    ("one:1,unix:/run/a", "address 2 of 2 ('unix:/run/a') is a Unix socket; a list may have only HOST:PORT"),
    ("unix:/run/a,one:1", "address 1 of 2 ('unix:/run/a') is a Unix socket; a list may have only HOST:PORT"),
])  # fmt: skip
def test_a_wrong_list_is_refused_with_the_wrong_address_and_the_right_form(text: str, problem: str) -> None:
    with pytest.raises(PydanticCustomError) as error:
        api_addresses(text)
    assert error.value.message() == f"{problem}; a list has the form HOST:PORT,HOST:PORT"


def test_a_list_with_too_many_addresses_is_refused() -> None:
    with pytest.raises(PydanticCustomError, match=r"at most 8 addresses are allowed, one per controller .given: 9"):
        api_addresses(",".join(f"h{n}:1" for n in range(MAX_ADDRESSES + 1)))


def test_a_token_is_not_sent_to_a_list_that_leaves_this_machine_without_tls() -> None:
    with pytest.raises(InvalidInput, match=r"a token is sent to 192\.0\.2\.1:1 only through TLS"):
        Credentials(token_file="token").metadata("127.0.0.1:1,192.0.2.1:1")


def leaf_spine(leaves: int, spines: int) -> list[tuple[str, str]]:
    return [(f"leaf{leaf}", f"spine{spine}") for leaf in range(1, leaves + 1) for spine in range(1, spines + 1)]


def test_the_spines_of_a_leaf_spine_fabric_are_one_switch_and_circuits_are_no_tree() -> None:
    nodes = {"leaf1": ["n2", "n10", "n1"], "leaf2": ["n3"]}
    assert topology_conf(tree(leaf_spine(2, 4), nodes)) == (
        "SwitchName=leaf1 Nodes=n1,n2,n10\nSwitchName=leaf2 Nodes=n3\nSwitchName=tier1-1 Switches=leaf1,leaf2\n"
    )
    refuse_circuits([])
    with pytest.raises(NoTree, match="2 circuits of optical switches"):
        refuse_circuits(["server1:2>server2", "server2:2>server1"])


def test_a_fat_tree_has_its_pods_below_one_switch_unless_a_pod_has_one_leaf() -> None:
    cables = [(f"edge{p}{e}", f"agg{p}{a}") for p in "12" for e in "ab" for a in "xy"]
    cables += [(f"agg{p}{a}", f"core{a}{c}") for p in "12" for a in "xy" for c in "12"]
    nodes = {f"edge{p}{e}": [f"n{p}{e}"] for p in "12" for e in "ab"}
    assert tree(cables, nodes)[4:] == [
        TreeSwitch("tier1-1", (), ("edge1a", "edge1b")),
        TreeSwitch("tier1-2", (), ("edge2a", "edge2b")),
        TreeSwitch("tier2-1", (), ("tier1-1", "tier1-2")),
    ]
    cables = [("edge1", "agg1"), ("edge2", "agg2"), ("edge3", "agg2"), ("agg1", "core"), ("agg2", "core")]
    found = tree(cables, {"edge1": ["a"], "edge2": ["b"], "edge3": ["c"]})[3:]
    assert found == [TreeSwitch("tier1-1", (), ("edge2", "edge3")), TreeSwitch("tier2-1", (), ("edge1", "tier1-1"))]


def test_leaves_without_nodes_are_left_out_and_parts_that_nothing_connects_stay_apart() -> None:
    found = tree(leaf_spine(3, 2), {"leaf1": ["n1"], "leaf2": [], "leaf3": ["n3"]})
    assert [switch.name for switch in found] == ["leaf1", "leaf3", "tier1-1"]
    found = tree([("leaf1", "spine1"), ("leaf2", "spine1")], {"leaf1": ["n1"], "leaf2": ["n2"], "leaf3": ["n3"]})
    assert found[3:] == [TreeSwitch("tier1-1", (), ("leaf1", "leaf2"))]
    assert tree(leaf_spine(1, 2), {"leaf1": ["n1"]}) == [TreeSwitch("leaf1", ("n1",), ())]
    assert topology_conf(tree([], {})) == ""


@pytest.mark.parametrize(("leaves", "spine", "names"), [
    (("leaf1", "leaf 2"), "tier1-1", ("leaf1", "leaf_2", "tier1-1-")),
    (("leaf 1", "leaf/1"), "spine", ("leaf_1", "leaf_1-", "tier1-1")),
])  # fmt: skip
def test_names_are_such_as_slurm_takes_and_unlike(leaves: tuple[str, str], spine: str, names: tuple[str, ...]) -> None:
    one, other, top = names
    found = topology_conf(tree([(leaf, spine) for leaf in leaves], {leaves[0]: ["n1"], leaves[1]: ["n2"]}))
    expected = f"SwitchName={one} Nodes=n1\nSwitchName={other} Nodes=n2\nSwitchName={top} Switches={one},{other}\n"
    assert found == expected


def test_switches_with_nodes_that_are_connected_without_others_are_below_one() -> None:
    """Slurm does not allocate nodes together that no switch of its tree connects.

    In the first case the switches form a ring; in the second case a spine has a node too."""
    ring = [("leaf1", "leaf2"), ("leaf2", "leaf3"), ("leaf3", "leaf1")]
    assert tree(ring, {f"leaf{k}": [f"n{k}"] for k in (1, 2, 3)})[3:] == [
        TreeSwitch("tier0-1", (), ("leaf1", "leaf2", "leaf3"))
    ]
    found = tree(leaf_spine(2, 1), {"leaf1": ["n1"], "leaf2": ["n2"], "spine1": ["storage"]})
    assert found[3:] == [TreeSwitch("tier0-1", (), ("leaf1", "leaf2", "spine1"))]
