"""The decisions of the control loop: state with one owner per kind, values derived from it, and work that is due.

Everything here gets frozen data and ``now``, and returns commands. Only the edges read clocks, send or block.

In: messages of switches, of the API, of the planner and of the store. Out: commands for them (``messages``), and the
published status.

- ``state``: what the controller knows. Only the methods of its owner change a kind of state.
- ``intake``, ``requests``: which owners a message goes to, and which work becomes due.
- ``effects``: due work as one value; several such values merge, and nothing else says that work is due.
- ``derived``: one row per derived value: candidate paths, problem, pins, rules, confirmed routes, status of jobs.
- ``phases``: adopting, steady, removing next hops, repairing. A table has the legal transitions.
- ``planning_cycle``: which problem is being solved, and what becomes of the answer.
- ``load_events``: which changes of load start a plan.
- ``sending``: the next stage of rules, confirmed routes, and replies that wait for confirmation.
- ``commits``: requests that wait for the disk; they are undone when a commit fails.
- ``draining``: when a drained part can be pulled.
- ``published``, ``job_statuses``, ``alarms``, ``missed_parts``: what others see.
- ``extension``: all that the core knows of an extension.

Heartbeats and reported iterations change no input of a derived value; ``controller.jobs.job.Vitals`` keeps them.
"""
