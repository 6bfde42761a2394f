"""Optical switches between servers: the choice of circuits for each job, and the control of the optical switches.

The package is the only extension of the control loop (``controller.core.messages``). In: messages of optical switches,
jobs, and the ports where probes arrive. Out: circuits as one-way links, the reasons why jobs wait, and the first routes
of each job.

- ``extension``: the interface to the core; connects the other files.
- ``wired_jobs``, ``damage``: the next job to be wired, the reasons why jobs wait, and lost circuits.
- ``messages``, ``places``, ``answers``, ``live``: questions about wirings, answered in a separate process.
- ``job_wiring``: the answer as a part of the job's registration.
- ``optical_switches``, ``cross_connects``: present and wanted cross-connects of optical switches, and their changes.
- ``cabling``, ``fibres``: the configured fibres, and the detection of fibres that are connected otherwise.
- ``alarms``, ``status``, ``published``: alarms, state and events for people.
- ``analysis``: circuits by name, and the use that a job makes of its circuits.
- ``wiring``: the search for a wiring, on a model of a direct-connect fabric.
"""
