"""The network as the controller knows it: topology, hosts, candidate paths, loads of links, drained parts.

In: reports of the southbound (``messages``), counters, names from operators. Out: frozen ``Fabric`` snapshots, paths
between switches, the background of each link. The package imports no other stage, reads no clock and sends no message.

- ``topology``: switches, links, hosts and paths, the ``Fabric`` snapshot, and its shortest paths.
- ``topology_state``: makes the snapshots: when a cable is used, and how long a failed cable stays unused.
- ``host_discovery``: finds hosts by ARP, and checks claims to addresses that another host has.
- ``counter_samples``, ``link_load``: compute the background of each link, the traffic that no job announced.
- ``parts``: parts that were seen or declared, and since when each is down.
- ``drains``: parts that operators take out of use, and lookup of parts by name.
- ``refusals``: refused packets and connections, and switches that flood or have another master.
"""
