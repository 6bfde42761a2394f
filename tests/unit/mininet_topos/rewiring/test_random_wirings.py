"""Random wirings, to which chosen ones are compared."""

from itertools import chain

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mininet_topos.rewiring.random_wirings import random_wiring


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    servers = draw(st.integers(2, 16))
    return servers, draw(st.integers(1, min(6, servers - 1)))


@given(sizes(), st.integers(0, 1 << 30))
def test_it_is_connected_and_every_server_has_a_neighbour_per_interface(size: tuple[int, int], seed: int) -> None:
    servers, interfaces = size
    wiring = random_wiring(servers, interfaces, seed)
    graph = nx.DiGraph([(each.src.server, each.dst.server) for each in wiring.circuits])
    assert nx.is_strongly_connected(graph)
    assert set(graph) == set(range(servers))
    assert {degree for _, degree in chain(graph.in_degree, graph.out_degree)} == {interfaces}
    for peers in wiring.peers:
        assert sorted(peer for peer in peers if peer is not None) == list(range(servers))


def test_the_seed_decides() -> None:
    found = [random_wiring(12, 4, seed) for seed in range(20)]
    assert len({wiring.peers for wiring in found}) == 20
    assert found[3] == random_wiring(12, 4, 3)
    assert all(wiring.steps is None for wiring in found)


@pytest.mark.parametrize(("servers", "interfaces"), [(4, 4), (4, 0), (1, 1)])
def test_more_interfaces_than_other_servers_are_refused(servers: int, interfaces: int) -> None:
    with pytest.raises(ValueError, match="may have 1 to"):
        random_wiring(servers, interfaces, 1)
