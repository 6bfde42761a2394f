"""Hops by networkx's breadth-first search, which shares no code with the controller.

The input is circuits as pairs of servers. The result is the largest number of hops of any pair, and the mean.
"""

from collections.abc import Iterable

import networkx as nx


def most_and_mean_hops(servers: int, circuits: Iterable[tuple[int, int]]) -> tuple[int, float]:
    """Return the largest and the mean number of hops over all pairs of different servers.

    Raises ``ValueError`` when a pair is not connected."""
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
