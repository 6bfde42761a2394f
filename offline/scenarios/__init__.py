"""The planner's input without a network: fabrics and jobs from files or numbers instead of switches and gRPC.

- ``topologies``: every topology, described once for planner, emulation and tests.
- ``fabrics``: a ``Fabric`` from a topology.
- ``scenario``, ``fabric_options``: from the options of a command to the input of the planner.
- ``graph_file``, ``workloads``, ``generator``: fabrics and workloads from files, and generated workloads.
"""
