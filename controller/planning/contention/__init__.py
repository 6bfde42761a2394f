"""Jobs that share links although they are routed well: who sends when, and who goes first.

In: jobs with their phases, the ways that they can take, and capacities (``fluid.Case``). Out: for each job a way, a
class and, if it keeps a slot, a start on a circle; the iteration time that this guarantees, and lower bounds. Pure.

- ``fluid``: the model; what a plan guarantees to each job, and bounds by prices.
- ``exact``: the best plan of a few jobs, by enumeration and by CP-SAT.
- ``crux``, ``cassini``: the parts of two published systems, on the same model.
"""
