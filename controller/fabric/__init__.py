"""The network as the controller knows it: topology, hosts, candidate paths, loads of links, drained parts.

This package is the first stage: it imports no other stage. It neither reads clocks nor sends messages.

In: reports of the southbound (``messages``), counters, names from operators. Out: frozen ``Fabric`` snapshots, paths
between switches, the background of each link.

- ``topology``: the vocabulary (switch, link, host, path), the ``Fabric`` snapshot, and its shortest paths: next hops of
  every switch and candidate paths, kept up to date as links change.
- ``topology_state``: makes the snapshots. It decides when a cable is used, and how long a failed cable stays unused.
- ``host_discovery``: finds hosts by ARP, and checks claims to addresses that another host has.
- ``counter_samples``, ``link_load``: compute the background of each link from counters. Background is the rate of the
  traffic that no job announced.
- ``parts``: switches, cables and hosts that were seen or declared, and the time since which each of them is down.
- ``drains``: parts that operators take out of use, and lookup of parts by name.
- ``refusals``: refused packets and connections, and switches that flood or have another master.
"""
