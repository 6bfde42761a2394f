"""Jobs that share links in time: measures the rhythm of jobs, and lets them keep the slots that a plan gives them.

The package is an extension of the control loop (``controller.core.messages``). In: iteration reports, job specs, and
the slots and classes of plans. Out: the times of jobs for the planner, how long a job waits at its next iteration
boundary, alarms, and what is published about the timing of each job.

- ``extension``: the interface to the core; connects the other files.
- ``rhythm``: the times of a job's latest iterations, and what is usual for the job.
- ``timing``: the times of a job for the planner, from its spec and its rhythm.
- ``keeping``: leads of jobs on a circle, and whether a job keeps its slot and gains by it.
"""
