"""Decisions of the control loop: the state, the values that are derived from it, and the work that is due.

The code of this package gets frozen data and the time ``now``, and returns commands. Only code outside of this package
reads clocks, sends or blocks.

In: messages of switches, of the API, of the planner and of the store. Out: commands to the senders of these messages
(``messages``), and the published status.

- ``messages``: messages, commands, effects (due work) that can be merged, and the interface of an extension.
- ``intake``: passes each message to the owners of the state that the message changes, and returns the work that becomes
  due.
- ``state``: state of the controller. Each kind of state has an owner, and only the owner's methods change it. Requests
  wait here until they are on disk, and are undone when a commit fails.
- ``derived``: one row per derived value: candidate paths, problem, pins, rules, confirmed routes, status of jobs.
- ``planning_cycle``: decides when to plan, sends the problem to the planner, and adopts its plan.
- ``sending``: the phases (adopting, steady, removing next hops, repairing), the next stage of rules, confirmed routes,
  and replies that wait for confirmation.
- ``draining``: decides when a drained part can be pulled.
- ``published``, ``job_statuses``, ``alarms``: the published view, and questions about the present network.

Renewals and reported iterations are frequent, so no derived value depends on them. ``controller.jobs.job.Vitals`` keeps
them.
"""
