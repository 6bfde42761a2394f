"""The accepted jobs: registrations, leases and announced traffic.

In: requests of jobs and of operators. Out: frozen ``Job`` snapshots with their announced traffic, replies, and the
state to save for a restart (``messages.SavedState``).

- ``messages``: requests, with the quota of the tenant; registrations, and how they ended.
- ``registry``: accepted jobs by id, their owners and leases.
- ``requested``: checks of requested jobs and reported connections against all other jobs.
- ``job``: the frozen job; its ``Vitals``, which change all the time; the announced pairs of all jobs.
"""
