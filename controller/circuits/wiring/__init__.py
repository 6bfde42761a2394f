"""Model of direct-connect fabrics: finds the circuits that a job should have, and bounds on their times. Pure.

In: a job, its servers, the optical switches. Out: a wiring with its routes and times. docs/wiring.md has the model.

- ``circuits``: circuits, hops over them, and their load.
- ``traffic``: the bytes that a job sends in rings and between pairs.
- ``finder``: the search for the best wiring. ``rings``: circulant wirings, and routes on them.
- ``evaluation``: the times of a parallelization on a wiring, and on one switch of the same cost.
- ``mending``: replacements for lost circuits.
"""
