"""OpenFlow rules as data: the rules that every switch should hold, and changes that are safe at every step.

This package uses no OpenFlow library; ``southbound`` turns rules into messages.

In: the fabric, the running routes, and the rules and counters that switches report (``messages``). Out: a ``RuleSet``
per switch, stages of changes, the routes that switches have confirmed.

- ``rules``: the types, and ``stages_between``, the difference of two rule sets in safe stages.
- ``flow_tables``: the rules of tables 0, 1 and 2.
- ``running_routes``: the routes that flows should take, the routes that switches have confirmed, and the links that
  flows may use. After a restart the routes are read from the switches.
- ``pins``: the wanted rules of table 1 (*pins*), which follow from the routes in force. The pins of a large plan are
  derived in portions.
- ``pipeline``: the rules of all switches, and the first reaction to a lost link. Only rules that may have changed are
  derived again.
- ``switch_sync``: makes each switch hold its wanted rules: reads rules back, sends one stage at a time, audits. It also
  records how full the tables of switches are.
- ``counters``: intake of counters.
- ``purpose``: the purpose of each rule.
"""
