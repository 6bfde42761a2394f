"""Time sharing: measure the rhythm of jobs that share links, and let them keep the slots that a plan gives them.

A plan arranges jobs that share links on a circle: the time after which their slots repeat. A slot is the part of this
time in which a job communicates. A class is a priority of jobs.

The package is an extension of the control loop (``controller.core.messages``). In: iteration reports, job specs, and
the slots and classes of plans. Out: the times of jobs for the planner, how long a job waits at its next iteration
boundary, alarms, and what is published about the timing of each job.

- ``extension``: the interface to the core; connects the other files.
- ``rhythm``: the times of a job's latest iterations, and what is usual for the job.
- ``timing``: the times of a job for the planner, from its spec and its rhythm.
- ``keeping``: how far jobs are ahead of their slots, and whether a job keeps its slot and is no slower with it.
"""
