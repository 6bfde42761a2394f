"""The planner: routes that keep the communication of each job close to its ideal time, checked and with a bound.

It runs in a process of its own, so that it shares no interpreter with the control loop.

In: ``SolvePlan`` with a ``Snapshot`` of capacities, candidate paths, flows and routes. Out: a repair; a plan with its
certificate and the decision whether to adopt it, or the reason why there is no plan.

The modules, in the order in which a request passes them:

- ``process``: the controller's end of the planning process. It sends the changes since the previous request
  (``snapshot``) and replaces a planning process that ends.
- ``worker``: the threads in the planning process, one for repairs and one for plans. ``answers`` keeps the state that
  the next request needs, such as goal plans, which take more moves than one cycle may make.
- ``snapshot``, ``problem``: the input, as types and as arrays.
- ``planner``: runs the methods from the cheapest to the most expensive, until a routing is proven optimal.
- ``closed_forms``, ``three_tiers``, ``greedy``, and the packages ``whole_flows`` and ``split_flows``: the methods.
- ``bounds``, ``slowdown_vector``: lower bounds of the slowdowns of every routing.
- ``plan_check``: checks a plan, and shares no code with the methods.
- ``plan``: the plan, the facts about the plan that the control loop needs, and ``decide``, which decides whether the
  plan is worth its moves.
- ``transition``: the moves of one cycle towards a goal plan.

The other modules:

- ``efficiency``: the definitions of load, slowdown and efficiency, which all other modules use, and the slowdowns
  under hashing.
- ``certificate``: makes proofs. ``verify``: checks them and needs only Python; docs/verify_plan.py links to it.
- ``baselines``: the slowdowns under published routing schemes.
- ``analysis``: questions about the running network.
"""
