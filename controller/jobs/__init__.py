"""The accepted jobs: registrations, leases, announced traffic, and the traffic that switches count.

In: requests of jobs and of operators (``messages``), counters per pair of addresses. Out: frozen ``Job`` snapshots with
the virtual links to plan for, replies, and what a restart must know (``messages.SavedState``).

- ``registry``: accepted jobs by id, their owners and leases. ``replacements`` judges several updates as one set.
- ``job``: the frozen job. Beside it, ``Vitals`` hold what changes all the time: the lease and reported iterations.
- ``announcements``: which job announced which pair of addresses.
- ``measured_demand``: the bytes that every job is planned for.
- ``watched_job``, ``payload_windows``, ``judgement``, ``traffic_patterns``: the measured demand of one job. They count
  the job's payload, compare it with the announcement, and recognise traffic patterns.
- ``ends``: how registrations ended.
- ``quotas``, ``host_prefixes``: what one tenant may use, and which hosts its jobs may name.
- ``reported_connections``: open connections, so that jobs can share a pair of hosts.
- ``prediction``: whether a job's communication time follows from the load of links.
"""
