"""The Signalbox controller: plans routes for training jobs, and installs rules for these routes on OpenFlow switches.

docs/glossary.md defines the terms: part, pin, flow, slowdown. docs/architecture.md shows which packages import which,
and what the threads and processes do. ``public`` lists the names that other distributions may import. The modules
outside of packages:

- ``control_loop``: the one thread that decides.
- ``status``, ``alarms``: the frozen snapshot of the controller that all readers share.
- ``events``: the history of events. ``silence``: alarms that operators have noticed.
- ``config``, ``toml_files``, ``tls``: the configuration as a frozen object, and other files.
- ``shared_map``: large mappings and derived values, updated in time proportional to the changes.
- ``child``, ``answerer``: child processes of the controller, and a child process that answers questions.
- ``extensions``: loads the extension that is configured.
"""
