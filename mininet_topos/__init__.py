"""The emulated fabric, and programs that train and measure on it. Root and Open vSwitch are needed.

This package imports the controller and ``offline``; neither imports this package.

- ``lab``: the fabric of Open vSwitch bridges and namespaces. ``fabric_topo``, ``leaf_spine``, ``fat_tree``, ``graph``,
  ``direct_connect``: its topologies for Mininet.
- ``trainer``: training jobs with real collectives over TCP, whose results are checked.
- ``joining``: real jobs of PyTorch, Open MPI and Slurm.
- ``probe``: numbered packets between hosts, to count lost packets.
- ``demo``, ``rewiring``: the two demos.
- ``controller_process``, ``haproxy_process``: a controller and HAProxy as processes that can be killed.
- ``ending``: signals that end a program, handled only at points where it can stop.
"""
