"""Plans, simulations and designs of networks on paper, with the planner of the controller: no network, no root.

Imports of the controller only the names in ``controller.public``; the controller does not import this package.

- ``commands``: the commands on paper, with their tables.
- ``scenarios``: fabrics and jobs from sizes and files.
- ``schemes``: every routing scheme behind one signature.
- ``simulator``: training on a fluid model of the network.
- ``design``: bandwidths, placements and wirings for jobs.
"""
