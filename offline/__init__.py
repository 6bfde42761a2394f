"""Offline plans, simulations and designs of networks, made with the controller's planner, without network or root.

This package imports from the controller only the names in ``controller.public``. The controller does not import this
package.

- ``commands``: the offline commands. ``scenarios``: fabrics and jobs from sizes and files.
- ``schemes``: every routing scheme behind one signature.
- ``simulator``: training on a fluid model of the network.
- ``design``: bandwidths, placements and wirings for jobs.
"""
