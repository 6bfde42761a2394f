"""Model of direct-connect fabrics: the circuits that a job should have, and their distance from the optimum.

Pure; imports ``planning`` and the stages before it. docs/wiring.md has the model.

In: a job, its servers, the optical switches. Out: a wiring with its routes and times.

- ``circuits``: circuits and hops over them. ``traffic``: the bytes that a job sends in rings and between pairs.
- ``finder``: searches for the best wiring. ``assignment``: an exact matching for one optical switch.
- ``evaluation``: the times of a parallelization on a wiring.
- ``break_even``: the share of forwarded traffic above which direct connection loses.
- ``mending``: replacements for lost circuits.
"""
