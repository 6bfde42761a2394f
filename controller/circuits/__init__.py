"""Optical switches between servers: chooses circuits for each job, and controls the optical switches.

The package is an extension of the control loop (``controller.core.messages``); docs/wiring.md has the model. In:
messages of optical switches, jobs, and the ports where probes arrive. Out: circuits as one-way links, the reasons why
jobs wait, and the first routes of each job.

- ``extension``: the interface to the core; connects the other files, and raises alarms.
- ``wired_jobs``: which job gets circuits next. ``job_wiring``: the wiring of a job, and its damage.
- ``questions``, ``answers``: questions about wirings, and their answers in a separate process.
- ``optical_switches``: present and wanted cross-connects of optical switches, and their changes.
- ``fibres``: the configured fibres, and the detection of wrong ones.
- ``published``, ``analysis``: the circuits of a job in API messages, in the log and in analyses.
- ``wiring``: the search for a wiring, on a model of a direct-connect fabric.
"""
