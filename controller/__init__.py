"""The Signalbox controller: plans routes for training jobs, and keeps OpenFlow switches at the rules that follow.

Each stage imports only the stages before it: ``fabric``, ``jobs``, then ``planning`` and ``store``, then ``tables``,
``core``, ``serving`` and ``commands``. The edges ``southbound``, ``api`` and ``observability`` know frozen types only,
and not each other. ``circuits`` is an extension that is loaded where it is configured. ``public`` lists the names that
other distributions may import. docs/architecture.md has the pictures.

- ``control_loop``: the one thread that decides.
- ``status``, ``alarms``: the frozen picture of the controller that all readers share.
- ``config``: the configuration file as a frozen object.
- ``memo``, ``shared_map``: derived values and large mappings, at the cost of what has changed.
- ``child``, ``answerer``: processes beside the controller, and questions that are answered in one.
- ``extensions``: loads the extension that is configured.
"""
