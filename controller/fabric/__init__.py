"""The network as the controller knows it: topology, hosts, candidate paths, loads of links, drained parts.

This package is the first stage: it imports no other stage, and neither reads clocks nor sends.

In: reports of the southbound (``messages``), counters, names from operators. Out: frozen ``Fabric`` snapshots, paths
between switches, the background of each link.

- ``topology``: the vocabulary (switch, link, host, path) and the ``Fabric`` snapshot.
- ``topology_state``: makes the snapshots. It decides when a cable is used, and how long a failed cable stays unused.
- ``host_discovery``: finds hosts by ARP, and checks claims to addresses that another host has.
- ``shortest_paths``: next hops of every switch and candidate paths, kept up to date as links change.
- ``counter_samples``, ``link_load``, ``recent_uses``, ``background``: from counters to the background of each link,
  which is the rate of the traffic that no job announced.
- ``parts``, ``known_parts``, ``declared_parts``: switches, cables and hosts that were seen or declared (*parts*), and
  the time since which each of them is down.
- ``drains``, ``part_names``: parts that operators take out of use, and lookup of parts by name.
"""
