"""Optical switches between servers: chooses circuits for each job, and controls the optical switches.

The package is the only extension of the control loop (``controller.core.messages``). In: messages of optical switches,
jobs, and the ports where probes arrive. Out: circuits as one-way links, the reasons why jobs wait, and the first routes
of each job.

- ``extension``: the interface to the core; connects the other files, and raises alarms.
- ``wired_jobs``: which job gets circuits next, and the reasons why jobs wait.
- ``job_wiring``: the wiring of a job (its circuits and rings), and its damage.
- ``questions``, ``answers``: questions about wirings, and the answers to them in a separate process.
- ``optical_switches``: present and wanted cross-connects of optical switches, and their changes.
- ``fibres``: the configured fibres, and the detection of fibres that are not connected as configured.
- ``published``: the circuits of a job in API messages, and events for the log.
- ``analysis``: circuits by name, and the use that a job makes of its circuits.
- ``wiring``: the search for a wiring, on a model of a direct-connect fabric.
"""
