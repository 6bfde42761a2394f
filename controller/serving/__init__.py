"""The running process: its queues and threads, standing by, checks before the start, and the event log.

In: the configuration, and the files that it names. Out: a controller that runs until SIGTERM or SIGINT.

- ``serve``: makes every queue and thread. ``driver``: the thread that runs the control loop.
- ``arrangement``: how the control loop reaches switches. ``alone``: over the hub in the main thread. ``member``: over
  the members' processes (``southbound_process``), to which the leader assigns switches (``assigning``).
- ``inbox``, ``publishing``: the queue of messages to the control loop, and when its status is published.
- ``loaded``, ``reload``: the contents of files, and reloading them at SIGHUP. ``inventory``: declared parts.
- ``standby``, ``readiness``: waits for the claim of the saved state; reports to the service manager.
- ``preflight``, ``exposure``, ``validity``: checks of the configuration before anything is started.
- ``event_log``: derives events from two successive statuses. ``kept_events``, ``event_file``: save events for a
  restart. ``alarm_lines``: chooses the events of alarms that get a line in the log.
- ``haproxy``: writes the configuration of HAProxy, which is in front of the API.
- ``descriptors``, ``garbage``: share out file descriptors; schedule Python's garbage collector.
"""
