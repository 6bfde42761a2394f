"""The accepted jobs: registrations, leases and announced traffic.

In: requests of jobs and of operators (``messages``). Out: frozen ``Job`` snapshots with their announced traffic,
replies, and the state to save for a restart (``messages.SavedState``).

- ``registry``: accepted jobs by id, their owners and leases. ``replacements`` checks several updates as one set.
- ``job``: the frozen job. Its ``Vitals`` hold the values that change all the time: the lease and reported iterations.
- ``announcements``: announced pairs of addresses, and the jobs that announced them.
- ``ends``: ends of registrations, with their reasons.
- ``quotas``, ``host_prefixes``: limits of one tenant, and the hosts that its jobs may name.
- ``reported_connections``: open connections of jobs; jobs that report them can share a pair of hosts.
"""
