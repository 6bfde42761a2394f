"""Decisions of the control loop: the state, the values that are derived from the state, and the work that is due.

In: messages of switches, of the API, of the planner and of the store. Out: commands to the senders of these messages,
and the published status. The code of this package gets frozen data and the time ``now``. Only code outside of it reads
clocks, sends or blocks.

- ``messages``: messages, commands, effects (due work) that can be merged, and the interface of an extension.
- ``intake``: passes each message to the owners of the state that it changes, and returns the work that becomes due.
- ``state``: each kind of state has an owner. Requests wait here until they are on disk.
- ``derived``: one row per derived value, such as the planner's problem, pins and rules.
- ``planning_cycle``: decides when to plan, sends the problem to the planner, and adopts its plan.
- ``sending``: the phases of the controller, the next stage of rules, and replies that wait for confirmation.
- ``draining``: decides when a drained part can be pulled.
- ``published``, ``job_statuses``, ``alarms``: the published view, and questions about the present network.

No derived value depends on renewals and reported iterations (``controller.jobs.job.Vitals``), because these are
frequent.
"""
