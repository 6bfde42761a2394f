"""The accepted jobs: registrations, leases, announced traffic, and the traffic that switches count.

In: requests of jobs and of operators (``messages``), counters per pair of addresses. Out: frozen ``Job`` snapshots with
the virtual links to plan for, replies, and the state to save for a restart (``messages.SavedState``).

- ``registry``: accepted jobs by id, their owners and leases. ``replacements`` checks several updates as one set.
- ``job``: the frozen job. Its ``Vitals`` hold the values that change all the time: the lease and reported iterations.
- ``announcements``: announced pairs of addresses, and the jobs that announced them.
- ``measured_demand``: the bytes that every job is planned for.
- ``watched_job``, ``payload_windows``, ``judgement``, ``traffic_patterns``: the measured demand of one job. They count
  the job's payload, compare it with the announcement, and recognise traffic patterns.
- ``ends``: ends of registrations, with their reasons.
- ``quotas``, ``host_prefixes``: limits of one tenant, and the hosts that its jobs may name.
- ``reported_connections``: open connections of jobs; jobs that report them can share a pair of hosts.
- ``prediction``: check of whether a job's communication time follows from the load of links.
"""
