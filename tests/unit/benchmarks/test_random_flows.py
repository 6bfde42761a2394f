"""Random workloads: as many flows as requested, spread over all hosts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.plan.workloads import random_flows
from offline.scenarios.fabrics import leaf_spine
from offline.scenarios.generator import jobs_of
from signalbox.errors import InvalidInput

FABRIC = leaf_spine(16, 8, 32, 100e9, 100e9)


@given(flows=st.integers(6, 512), jobs=st.integers(1, 3), seed=st.integers(0, 99))
def test_random_flows_are_as_many_as_asked_and_load_every_host_once(flows: int, jobs: int, seed: int) -> None:
    workload = random_flows(FABRIC, flows, jobs, seed)
    made = [line for lines in workload.values() for line in lines]
    assert len(made) == len({line.src for line in made}) == len({line.dst for line in made}) == flows
    for job in jobs_of(workload, FABRIC):
        assert len({link.bytes for link in job.virtual_links}) == 1


@pytest.mark.parametrize(("flows", "jobs"), [(513, 1), (3, 2)])
def test_random_flows_need_hosts(flows: int, jobs: int) -> None:
    with pytest.raises(InvalidInput, match=r"there are 512"):
        random_flows(FABRIC, flows, jobs, seed=1)
