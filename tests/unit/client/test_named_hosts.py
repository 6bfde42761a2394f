"""Job specs that name hosts, as launchers write them."""

from pathlib import Path
from typing import Any

import pytest

from signalbox.errors import InvalidInput
from signalbox.named_hosts import with_addresses
from signalbox.spec_files import jobs_in

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


def test_endpoints_may_be_names_too() -> None:
    job = {"job_id": "job", "endpoints": ["n1", "n1", "n2", "n2"]}
    found = with_addresses(job, MAP)["endpoints"]
    assert found == ["10.0.1.1", "10.0.1.1", "10.0.2.1", "10.0.2.1"]


@pytest.mark.parametrize("job", [None, 7, [], {"hosts": 7}, {"hosts": [7]}, {"hosts": "10.0.1.1-4"}, {"endpoints": []}])
def test_what_names_no_hosts_stays(job: Any) -> None:
    assert with_addresses(job, MAP) == job


def test_hosts_with_several_nics_have_rails(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("job_id: job\nhosts: n[1-2]\nranks_per_host: 2\n")
    (job,) = jobs_in(path, lambda data: with_addresses(data, TWO_NICS))
    assert job.spec.endpoints == ("10.0.1.1", "10.0.1.1", "10.0.2.1", "10.0.2.1")
    assert [rail.endpoints for rail in job.spec.rails] == [("10.1.1.1", "10.1.1.1", "10.1.2.1", "10.1.2.1")]


def test_rails_of_the_job_count() -> None:
    rails = [{"hosts": "10.2.1-2.1"}]
    assert with_addresses({"hosts": "n[1-2]", "rails": rails}, TWO_NICS)["rails"] == rails


@pytest.mark.parametrize(("hosts", "problem"), [
    ("n[1-", "hosts: 'n[1-' does not name hosts; write them as n[1-4,7],m5"),
    (["n1", "n["], "hosts[1]: 'n[' does not name hosts; write them as n[1-4,7],m5"),
    (["n[1-2]", "10.0.9.1"],
     "hosts: an address is a host with one address, and some of the named hosts have several: name all hosts"),
])  # fmt: skip
def test_what_is_wrong_is_told_with_its_field(hosts: Any, problem: str) -> None:
    with pytest.raises(InvalidInput) as error:
        with_addresses({"hosts": hosts}, TWO_NICS)
    assert str(error.value) == problem


def test_a_name_without_an_address_is_told_with_file_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("job_id: job\nhosts: n1,unknown.invalid\n")
    with pytest.raises(InvalidInput) as error:
        jobs_in(path, lambda data: with_addresses(data, MAP))
    assert str(error.value).startswith(f"{path}:2:1: hosts: unknown.invalid has no IPv4 address here")
