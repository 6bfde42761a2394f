"""Number of hops between servers, counted by networkx without code of the controller."""

from collections.abc import Iterable

import networkx as nx


def most_and_mean_hops(servers: int, circuits: Iterable[tuple[int, int]]) -> tuple[int, float]:
    """Return the largest and the mean number of hops between different servers. ``circuits``: (from, to) servers.

    Raises ``ValueError`` when a server does not reach another one."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(servers))
    graph.add_edges_from(circuits)
    most = total = 0
    for _, hops in nx.all_pairs_shortest_path_length(graph):
        if len(hops) < servers:
            raise ValueError("some servers are not connected")
        most = max(most, *hops.values())
        total += sum(hops.values())
    return most, total / (servers * (servers - 1))
