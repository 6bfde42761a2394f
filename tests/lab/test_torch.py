"""A training of PyTorch over real switches that joins with two lines.

Shorter forms: ``tests/wire/test_torch.py`` joins without switches, and ``test_libraries.py`` pins the flows of Gloo."""

from pathlib import Path

import pytest

from mininet_topos.lab.running_fabric import LINK_MBPS, running_fabric
from mininet_topos.leaf_spine import LeafSpine
from tests.support.lab.waits import wait_for
from tests.support.torch.running import ranks

pytestmark = pytest.mark.long

PROGRAM = Path(__file__).parents[1] / "support" / "torch" / "training.py"
RANKS = 2
ITERATIONS = 100
WIDTH = 100
NO_NAMES = "RES_OPTIONS=timeout:1 attempts:1"
"""Resolver options: PyTorch looks up the names of all peers, which no server here knows (resolv.conf(5))."""
GRADIENTS = 4 * (WIDTH * WIDTH + WIDTH)


def test_a_training_with_two_more_lines_is_pinned_and_released(lab_prefix: str, tmp_path: Path) -> None:
    """The job's endpoints are the addresses of the ranks' interfaces.

    Its collectives are those announced before the first iteration. The job ends with the training."""
    topo = LeafSpine(RANKS, 2, 1, host_mbps=LINK_MBPS, fabric_mbps=LINK_MBPS, prefix=lab_prefix)
    with running_fabric(topo, tmp_path) as (lab, controller, client):
        interfaces = [f"GLOO_SOCKET_IFNAME={topo.interface(host.name, 0)}" for host in lab.hosts]
        inside = [["ip", "netns", "exec", lab.namespace(host), "env", NO_NAMES] for host in lab.hosts]
        enter = [[*words, interface] for words, interface in zip(inside, interfaces, strict=True)]
        words = [str(PROGRAM), str(ITERATIONS), str(WIDTH)]
        with ranks(tmp_path, RANKS, words, controller.address, enter=enter, master=lab.hosts[0].ip) as run:
            run.wait_until(lambda: bool(client.list_jobs()))
            run.wait_until(lambda: client.get_job("vision").pinned == RANKS)
            spec = client.get_job("vision").spec
            wait_for(lambda: client.get_job("vision").iterations > 0, "its iterations")
            run.wait()
        assert client.list_jobs() == ()
    assert [*spec.endpoints] == [host.ip for host in lab.hosts]
    assert [collective.bytes_per_iteration for collective in spec.collectives] == [GRADIENTS]
