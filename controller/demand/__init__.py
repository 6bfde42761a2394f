"""The traffic that jobs are planned with: their announcements, or the counted traffic that contradicts them.

In: jobs (``controller.jobs``), and counters per pair of addresses. Out: a frozen ``JobDemand`` for each job, and the
virtual links for the planner. docs/explanation/measured-demand.md describes the rules.

- ``measured_demand``: what every job is planned for, and the division of counting rules among jobs; begin here.
- ``watched_job``: the measured demand of one job.
- ``payload_windows``, ``pair_counters``: counted payload per pair, and the number of iterations in the same time.
- ``judgement``, ``traffic_patterns``: comparison with the announcement, and recurring traffic patterns.
- ``job_demand``: the frozen result.
"""
