"""The planner's input without a network: fabrics and jobs from files or sizes instead of switches and gRPC.

- ``topologies``: every topology, described once for planner, emulation and tests. ``fabrics``: makes a ``Fabric`` of a
  topology.
- ``fabric_options``, ``scenario``: the options of a command, and the planner's input made from them.
- ``graph_file``, ``workloads``, ``job_files``, ``generator``: fabrics and jobs from files, and generated workloads.
"""
