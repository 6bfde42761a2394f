"""Direct-connect fabrics on paper: which servers circuits should connect for a job, and how far that is from optimal.

Pure; imports ``planning`` and the stages before it. docs/wiring.md has the model.

In: a job, its servers, the optical switches. Out: a wiring with its routes and times.

- ``circuits``: circuits and hops over them. ``traffic``: what a job sends in rings and in pairs.
- ``finder``: searches for the best wiring. ``assignment``: an exact matching for one optical switch.
- ``evaluation``: the times of a parallelization on a wiring. ``break_even``: when forwarding costs more than it gains.
- ``mending``: circuits in place of lost ones.
"""
