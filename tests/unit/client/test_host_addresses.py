"""Addresses that jobs announce for named hosts, including job specs that name hosts as launchers write them."""

import re
import socket
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from signalbox.errors import InvalidInput
from signalbox.host_addresses import address_map, addresses_of, endpoints_of, host_names, hosts_named, with_addresses
from signalbox.spec_files import jobs_in

RESOLVED = {"n1": ["10.0.1.1"], "n2": ["192.0.2.2", "10.0.2.1"], "10.0.9.9": ["10.0.9.9"]}
RESOLVED |= {"own": ["127.0.1.1"], "both": ["127.0.1.1", "10.0.3.1"]}


@pytest.fixture(autouse=True)
def resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, _port: None, family: int, kind: int) -> list[object]:
        assert (family, kind) == (socket.AF_INET, socket.SOCK_STREAM)
        if host not in RESOLVED:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(family, kind, 6, "", (address, 0)) for address in RESOLVED[host]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n1,n2 n3\nn4", ["n1", "n2", "n3", "n4"]),
        ("n[1-4,07],m05", ["n1", "n2", "n3", "n4", "n07", "m05"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[0-1]n[1-2]-ib", ["r0n1-ib", "r0n2-ib", "r1n1-ib", "r1n2-ib"]),
        ("gpu-1.example.com", ["gpu-1.example.com"]),
    ],
)
def test_names_of_hosts_are_expanded_as_slurm_does(text: str, names: list[str]) -> None:
    assert host_names(text) == names


@pytest.mark.parametrize(
    "text", ["n[1-4", "n1-4]", "n[]", "n[4-1]", "n[a]", "n[1,,2]", "[", "n[1-999999999]", "n[1-99]" * 9]
)
def test_what_names_no_hosts_or_too_many_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"does not name hosts|at most 4096 hosts"):
        host_names(text)


def test_hosts_are_named_by_addresses_with_ranges_and_by_names() -> None:
    assert hosts_named("10.0.1-2.1, n[1-2],n3.example.com") == ["10.0.1.1", "10.0.2.1", "n1", "n2", "n3.example.com"]
    for text, said in (
        ("", "must name at least one host"),
        ("10.0.1.1-300", "must be IPv4 addresses such as"),
        ("10.0.1.1,n[1", "'n[1' does not name hosts"),
    ):
        with pytest.raises(InvalidInput, match=re.escape(said)):
            hosts_named(text)


def test_a_file_has_the_address_of_each_nic_of_a_host(tmp_path: Path) -> None:
    (file := tmp_path / "addresses.yaml").write_text("n[1-2]: [10.0.1.1-2, 10.1.1.1-2]\nn3.example.com: 10.0.3.1\n")
    found = address_map(file)
    assert found == {"n1": ("10.0.1.1", "10.1.1.1"), "n2": ("10.0.1.2", "10.1.1.2"), "n3.example.com": ("10.0.3.1",)}
    file.write_text('{"n3": "10.0.3.1"}')
    assert address_map(file) == {"n3": ("10.0.3.1",)}


WRONG = {
    "n1: 10.0.1.1\nn2: eth0\n": ":2:1: n2: must be IPv4 addresses such as",
    "n1: 10.0.1.1\nn2: 7\n": ":2:1: n2: must be a list",
    "n[1-4]: 10.0.1.1-3": ":1:1: n[1-4]: 10.0.1.1-3 has 3 addresses, but there are 4 hosts; give one address per host",
    "n[1: 10.0.1.1": ":1:1: 'n[1' does not name hosts",
    "- n1": ": must have the address of each host",
    "n1: [10.0.1.1": ":2:1: not YAML",
}


@pytest.mark.parametrize(("text", "said"), WRONG.items(), ids=WRONG.values())
def test_what_is_wrong_in_the_file_is_told_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    (file := tmp_path / "addresses.yaml").write_text(text)
    with pytest.raises(InvalidInput) as error:
        address_map(file)
    assert str(error.value).startswith(f"{file}{said}")


def test_the_file_comes_before_the_resolver_loopback_does_not_count_and_a_subnet_chooses() -> None:
    given = {"n1": ("10.7.0.1",), "n9": ("10.7.0.9",)}
    hosts = ["n9.example.com", "n1", "10.0.9.9", "n1"]
    assert addresses_of(hosts, given) == [("10.7.0.9",), ("10.7.0.1",), ("10.0.9.9",), ("10.7.0.1",)]
    assert addresses_of(["both", "n2"], {}, [IPv4Network("10.0.0.0/16")]) == [("10.0.3.1",), ("10.0.2.1",)]


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("own", "own: resolves to 127.0.1.1, which other hosts cannot reach; give its address with --addresses FILE"),
        ("n2", "n2: has several addresses, 192.0.2.2, 10.0.2.1; choose one with --addresses FILE"),
        ("n3", "n3: has no IPv4 address: Name or service not known; give it with --addresses FILE"),
    ],
)
def test_a_name_without_one_address_is_refused(host: str, said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        addresses_of(["n1", host], {}, [IPv4Network("172.16.0.0/12")])
    assert str(error.value) == said


def test_the_nics_of_each_rank_become_endpoints_and_rails_and_hosts_have_equally_many() -> None:
    with pytest.raises(InvalidInput, match="n1: has 1 address and n4 has 2; all hosts of a job need the same number"):
        addresses_of(["n1", "n4"], {"n4": ("10.0.4.1", "10.1.4.1")})
    one, two = ("10.0.1.1", "10.1.1.1"), ("10.0.2.1", "10.1.2.1")
    assert endpoints_of([one, one, two]) == {
        "endpoints": ("10.0.1.1", "10.0.1.1", "10.0.2.1"),
        "rails": [{"endpoints": ("10.1.1.1", "10.1.1.1", "10.1.2.1")}],
    }


MAP = {"n1": ("10.0.1.1",), "n2": ("10.0.2.1",), "n3": ("10.0.3.1",)}
TWO_NICS = {"n1": ("10.0.1.1", "10.1.1.1"), "n2": ("10.0.2.1", "10.1.2.1")}


@pytest.mark.parametrize(
    ("hosts", "addresses"),
    [
        ("n[1-3]", ["10.0.1.1", "10.0.2.1", "10.0.3.1"]),
        ("n3,n1", ["10.0.3.1", "10.0.1.1"]),
        (["n2", "n[1,3]"], ["10.0.2.1", "10.0.1.1", "10.0.3.1"]),
        (["n2", "10.0.9.1-2"], ["10.0.2.1", "10.0.9.1-2"]),
    ],
)
def test_names_become_addresses_in_their_order(hosts: Any, addresses: list[str]) -> None:
    assert with_addresses({"job_id": "job", "hosts": hosts}, MAP) == {"job_id": "job", "hosts": addresses}


def test_endpoints_may_be_names_and_rails_of_the_job_count() -> None:
    job = {"job_id": "job", "endpoints": ["n1", "n1", "n2", "n2"]}
    found = with_addresses(job, MAP)["endpoints"]
    assert found == ["10.0.1.1", "10.0.1.1", "10.0.2.1", "10.0.2.1"]
    rails = [{"hosts": "10.2.1-2.1"}]
    assert with_addresses({"hosts": "n[1-2]", "rails": rails}, TWO_NICS)["rails"] == rails


@pytest.mark.parametrize("job", [None, 7, [], {"hosts": 7}, {"hosts": [7]}, {"hosts": "10.0.1.1-4"}, {"endpoints": []}])
def test_what_names_no_hosts_stays(job: Any) -> None:
    assert with_addresses(job, MAP) == job


def test_hosts_with_several_nics_have_rails_and_names_without_an_address_a_place(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("job_id: job\nhosts: n[1-2]\nranks_per_host: 2\n")
    (job,) = jobs_in(path, lambda data: with_addresses(data, TWO_NICS))
    assert job.spec.endpoints == ("10.0.1.1", "10.0.1.1", "10.0.2.1", "10.0.2.1")
    assert [rail.endpoints for rail in job.spec.rails] == [("10.1.1.1", "10.1.1.1", "10.1.2.1", "10.1.2.1")]
    path = tmp_path / "job.yaml"
    path.write_text("job_id: job\nhosts: n1,unknown.invalid\n")
    with pytest.raises(InvalidInput) as error:
        jobs_in(path, lambda data: with_addresses(data, MAP))
    assert str(error.value).startswith(f"{path}:2:1: hosts: unknown.invalid has no IPv4 address")


@pytest.mark.parametrize(("hosts", "problem"), [
    ("n[1-", "hosts: 'n[1-' does not name hosts; write them as n[1-4,7],m5"),
    (["n1", "n["], "hosts[1]: 'n[' does not name hosts; write them as n[1-4,7],m5"),
    (["n[1-2]", "10.0.9.1"],
     "hosts: some of the named hosts have several NICs, but a host given as an address has one; name all hosts"),
])  # fmt: skip
def test_what_is_wrong_is_told_with_its_field(hosts: Any, problem: str) -> None:
    with pytest.raises(InvalidInput) as error:
        with_addresses({"hosts": hosts}, TWO_NICS)
    assert str(error.value) == problem
