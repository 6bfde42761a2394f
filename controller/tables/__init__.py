"""OpenFlow rules as data: the rules that every switch should hold, and the safe order of changing them.

In: the fabric, the running routes, and the rules and counters that switches report (``messages``). Out: a ``RuleSet``
per switch, stages of changes, and the routes that switches have confirmed. No OpenFlow library is used; ``southbound``
turns rules into messages.

- ``rules``: the types of rules, and ``stages_between``, which divides the difference of two rule sets into safe stages.
- ``flow_tables``: the rules of tables 0, 1 and 2. ``purpose``: the purpose of each rule.
- ``running_routes``: the routes that flows should take, and those that switches have confirmed.
- ``pins``: the wanted rules of table 1 (*pins*), which follow from the routes in force.
- ``pipeline``: derives the rules of all switches, and removes next hops when a link is lost.
- ``switch_sync``: makes each switch hold its wanted rules: reads rules back, sends one stage at a time, audits.
- ``counters``: records the counters of switches.
"""
