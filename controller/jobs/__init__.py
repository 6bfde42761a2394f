"""The accepted jobs: registrations, leases and announced traffic.

In: requests of jobs and of operators (``messages``). Out: frozen ``Job`` snapshots with their announced traffic,
replies, and the state to save for a restart (``messages.SavedState``).

- ``messages``: requests, with the quota of the tenant; registrations, and how they ended.
- ``registry``: accepted jobs by id, their owners and leases.
- ``requested``: checks whether the jobs that one request registers or changes may exist beside all other jobs. It also
  checks reported connections. Only jobs that report their connections can share a pair of hosts.
- ``job``: the frozen job. Its ``Vitals`` are the values that change all the time: the lease and reported iterations.
  ``Announcements`` has the announced pairs of addresses, each with the jobs that announced it."""
