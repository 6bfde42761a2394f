"""OpenFlow rules as data: the rules that every switch should hold, and changes that are safe at every step.

This package uses no OpenFlow library; ``southbound`` turns rules into messages.

In: the fabric, the running routes, and the rules and counters that switches report (``messages``). Out: a ``RuleSet``
per switch, stages of changes, the routes that switches have confirmed.

- ``rules``: the types, and ``stages_between``, the difference of two rule sets in safe stages.
- ``control_table``, ``pinned_table``, ``default_table``: the rules of tables 0, 1 and 2.
- ``running_routes``: the routes that flows should take; after a restart they are read from the switches.
- ``pins``: the wanted rules of table 1 (*pins*), which follow from the routes in force. The pins of a large plan are
  derived in portions.
- ``pipeline``, ``switch_rules``: the rules of all switches and of one switch, derived from what has changed.
- ``switch_sync``: keeps each switch at its rules: reads them back, sends one stage at a time, audits.
- ``confirmed_routes``: the wanted routes that are installed on the switches.
- ``lost_next_hops``: the first reaction to a lost link.
- ``unknown_hosts``: installed rules that stay until their hosts are known.
- ``counters``, ``counted_links``, ``table_use``: counters, the links of counted flows, and the use of tables.
- ``purpose``: the purpose of each rule.
"""
