"""The running process: its queues and threads, the wait of a standby, checks before the start, the event log.

In: the configuration, and the files that it names. Out: a controller that runs until SIGTERM or SIGINT.

- ``serve``: makes every queue and thread, each under a comment that says who writes and who reads.
- ``driver``: the thread of the control loop, which carries out its commands.
- ``arrangement``: how the loop reaches switches. ``alone``: from the hub in the main thread. ``member``: members divide
  the switches (``southbound_process``), as the leader assigns them (``assigning``).
- ``inbox``, ``publishing``: the queue of messages to the control loop, and the times at which it publishes its status.
- ``loaded``, ``reload``: the contents of files, and their reload at SIGHUP.
- ``standby``, ``readiness``: the wait for the claim of the saved state; reports to the service manager.
- ``preflight``, ``exposure``, ``validity``: checks of the configuration before anything is started.
- ``inventory``: declared hosts, switches and cables.
- ``event_log``: the events between two statuses. ``kept_events``, ``event_file``: they are kept over a restart.
- ``alarm_lines``: events of alarms that have a line in the log.
- ``haproxy``: the configuration of HAProxy before the API.
- ``descriptors``, ``garbage``: shares of file descriptors; the schedule of Python's garbage collector.
"""
