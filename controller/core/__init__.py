"""The decisions of the control loop: state with one owner per kind, values derived from the state, and due work.

The code of this package gets frozen data and the time ``now``, and returns commands. Only code outside of this package
reads clocks, sends or blocks.

In: messages of switches, of the API, of the planner and of the store. Out: commands to the senders of these messages
(``messages``), and the published status.

- ``messages``: messages, commands, effects (due work) that can be merged, and the interface of an extension.
- ``intake``: passes each message to the owners of the state that it changes, and returns the work that becomes due.
- ``state``: state of the controller. Each kind of state has an owner, and only the owner's methods change it. Requests
  wait for the disk here; they are undone when a commit fails.
- ``derived``: one row per derived value: candidate paths, problem, pins, rules, confirmed routes, status of jobs.
- ``planning_cycle``: loads that start a plan, the problem that the planner is solving, and the adoption of its plan.
- ``sending``: the phases (adopting, steady, removing next hops, repairing), the next stage of rules, confirmed routes,
  and replies that wait for confirmation.
- ``draining``: decision when a drained part can be pulled.
- ``published``, ``job_statuses``, ``alarms``: the published view, and questions about the present network.

Renewals and reported iterations are frequent, so no derived value depends on them. ``controller.jobs.job.Vitals``
keeps them.
"""
