"""The running process: its queues and threads, the wait of a standby, checks before the start, the event log.

In: the configuration, and the files that it names. Out: a controller that runs until SIGTERM or SIGINT.

- ``serve``: makes every queue and thread, each under a comment that says who writes and who reads. Its driver is the
  thread of the control loop.
- ``inbox``, ``publishing``: the way to the control loop, and when its status is published.
- ``loaded``, ``reload``: the contents of files, and how SIGHUP reads them again.
- ``standby``, ``readiness``: the wait for the claim of the saved state; reports to the service manager.
- ``preflight``, ``exposure``, ``validity``: what is wrong or unwise before anything is started.
- ``inventory``: declared hosts, switches and cables.
- ``event_log``, ``event_file``: the events between two statuses, kept over a restart.
- ``haproxy``: the configuration of HAProxy before the API.
- ``descriptors``, ``garbage``: shares of file descriptors; when Python looks for cycles.
"""
