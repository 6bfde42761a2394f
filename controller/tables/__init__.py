"""OpenFlow rules as data: the rules that every switch should hold, and the safe order of changing them.

This package uses no OpenFlow library; ``southbound`` turns rules into messages.

In: the fabric, the running routes, and the rules and counters that switches report (``messages``). Out: a ``RuleSet``
per switch, stages of changes, and the routes that switches have confirmed.

- ``rules``: the types of rules, and ``stages_between``, which divides the difference of two rule sets into safe stages.
- ``flow_tables``: the rules of tables 0, 1 and 2.
- ``running_routes``: the routes that flows should take, the routes that switches have confirmed, and the links that
  flows may use. After a restart the routes are read from the switches.
- ``pins``: the wanted rules of table 1 (*pins*), which follow from the routes in force. The pins of a large plan are
  derived in portions.
- ``pipeline``: derives the rules of all switches, and removes next hops when a link is lost. Only rules that may have
  changed are derived again.
- ``switch_sync``: makes each switch hold its wanted rules: reads rules back, sends one stage at a time, audits. It also
  records how full the tables of switches are.
- ``counters``: records the counters of switches.
- ``purpose``: the purpose of each rule.
"""
