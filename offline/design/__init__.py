"""Designs of networks for jobs: bandwidths of each dimension, placements, spines and cores, wirings.

docs/design.md has the model. An NPU is an accelerator, such as a GPU. The input is files of networks and
jobs. The result is a design, with a bound that can be checked without a solver.

- ``shape``, ``jobs``, ``parallelizations``: networks and jobs, read from files.
- ``loads``, ``placing``: the load of each dimension, and the placement of a model on the dimensions.
- ``question``: terms of time and limits, the input of ``bandwidth`` and ``time_cost``.
- ``bandwidth``: the bandwidths with the least time, with Clarabel. ``proof`` has the lower bounds.
- ``time_cost``: the bandwidths with the least time × cost.
- ``spines``: the size of the top tier that jobs need while some switches have failed.
- ``exact``: the best steps of a wiring, with CP-SAT.
"""
