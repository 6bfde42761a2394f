"""The traffic that jobs are planned with: their announcement, until the switches count something else.

In: jobs (``controller.jobs``), and counters per pair of addresses. Out: a frozen ``JobDemand`` for each job, and the
virtual links for the planner (docs/explanation/measured-demand.md).

- ``measured_demand``: the bytes that every job is planned for; begin here.
- ``watched_job``, ``payload_windows``, ``judgement``, ``traffic_patterns``: the measured demand of one job. They count
  the job's payload, compare it with the announcement, and recognise traffic patterns.
- ``pair_counters``, ``iterations``: counted bytes per pair, and the iterations done meanwhile.
- ``early_learning``, ``first_bytes``: what is learnt of new and of unknown jobs before amounts are known.
- ``job_demand``: the frozen result.
- ``prediction``: check of whether a job's communication time follows from the load of links.
"""
