"""The planner's input without a network: fabrics and jobs from files or sizes instead of switches and gRPC.

- ``topologies``: every topology, described once for planner, emulation and tests.
- ``fabrics``: makes a ``Fabric`` from a topology.
- ``fabric_options``, ``scenario``: the options of a command, and the planner's input made from them.
- ``graph_file``, ``workloads``, ``generator``: fabrics and workloads from files, and generated workloads.
"""
