"""The planner: routes that keep the communication of each job close to its ideal time, checked and with a bound.

In: ``SolvePlan`` with a ``Snapshot`` of capacities, candidate paths, flows and routes. Out: a repair; a plan with its
certificate and the decision whether to adopt it, or the reason why there is no plan. The planner runs in a process of
its own. docs/explanation/planning.md describes the methods.

The modules, in the order in which a request passes them:

- ``process``: the controller's end of the planning process; ``worker``: the threads in the process.
- ``answers``: the answers to a request, and goal plans, which take more moves than one cycle may make.
- ``snapshot``, ``problem``: the input, as types and as arrays.
- ``planner``: runs the methods (``closed_forms``, ``three_tiers``, ``greedy``, ``whole_flows``, ``split_flows``).
- ``bounds``, ``slowdown_vector``: lower bounds of the slowdowns of every routing.
- ``plan_check``: checks a plan. ``plan``: the plan, and ``decide``, which decides whether it is worth its moves.
- ``transition``: the moves of one cycle towards a goal plan.

The other modules:

- ``efficiency``: load, slowdown and efficiency of phases and jobs, and the slowdowns under hashing.
- ``certificate``: makes proofs. ``verify``: checks them and needs only Python; docs/verify_plan.py links to it.
- ``baselines``: the slowdowns under published routing schemes.
- ``contention``: jobs that share links in time, with slots and classes; not used by the planner yet.
- ``analysis``: questions about the running network.
"""
