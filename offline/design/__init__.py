"""Designs of networks for jobs: bandwidths of each dimension, placements, spines and cores, wirings.

docs/design.md has the model. An NPU is an accelerator, such as a GPU. In: files of networks and jobs. Out: a design,
with a bound that can be checked without a solver.

- ``shape``, ``jobs``, ``parallelizations``: networks and jobs, read from files.
- ``loads``, ``placing``: the load of each dimension, and the placement of a model on the dimensions.
- ``question``: terms of time and limits, the input of ``bandwidth`` and ``time_cost``.
- ``bandwidth``, ``time_cost``: the bandwidths with the least time, or time × cost. ``proof`` has the lower bounds.
- ``spines``: the size of the top tier that jobs need while some switches have failed.
- ``exact``: the best steps of a wiring, with CP-SAT.
"""
