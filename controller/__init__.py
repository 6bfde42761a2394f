"""The Signalbox controller: plans routes for training jobs, and installs rules for these routes on OpenFlow switches.

Each stage imports only the stages before it: ``fabric``, ``jobs``, then ``planning`` and ``store``, then ``tables``,
``core``, ``serving`` and ``commands``. The edges ``southbound``, ``api`` and ``observability`` use frozen types only,
and do not use each other. ``circuits`` is an extension that is loaded where it is configured. ``public`` lists the
names that other distributions may import. docs/architecture.md has the pictures.

- ``control_loop``: the one thread that decides.
- ``status``, ``alarms``: the frozen snapshot of the controller that all readers share.
- ``config``: the configuration file as a frozen object.
- ``shared_map``: large mappings and derived values, updated in time proportional to the changes.
- ``child``, ``answerer``: child processes of the controller, and a child process that answers questions.
- ``extensions``: loads the extension that is configured.
"""
