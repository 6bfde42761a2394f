"""Jobs that share links although they are routed well: who sends when, and who goes first.

In: a problem, routes, and the times of jobs. Out: slots and classes of the jobs, the iteration times that these
guarantee, and lower bounds. Pure; loaded only if times of jobs are known.

- ``case``: jobs that share links (``fluid.Case``), and the answer for the control loop.
- ``fluid``: the model; what a plan guarantees to each job, and bounds by prices.
- ``circles``, ``packing``: periods that jobs can keep together, and places for their slots.
- ``large``: the search for slots and classes.
- ``exact``: the best plan of a few jobs, with a proof.
- ``trial``: a short fluid run of a plan, for objectives that are averages.
- ``routing``: other routes, on which jobs disturb each other less. Only the simulator and the benchmark use them yet.
- ``crux``, ``cassini``: the parts of two published systems, on the same model.
"""
