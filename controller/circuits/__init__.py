"""Optical switches between servers: which circuits a job gets, and how they are connected.

The package is the only extension of the control loop (``controller.core.extension``). In: messages of optical switches,
jobs, and where probes arrive. Out: circuits as one-way links, the reasons why jobs wait, and the routes that a job
begins with.

- ``extension``: the interface to the core; connects the other files.
- ``wired_jobs``, ``damage``: which job is next, what it waits for, which circuits it has and has lost.
- ``messages``, ``places``, ``answers``, ``live``: questions for wirings, answered in a process of their own.
- ``job_wiring``: the answer as a part of the job's registration.
- ``optical_switches``, ``cross_connects``: what optical switches hold and should connect, changed step by step.
- ``cabling``, ``fibres``: the configured fibres, and those that are connected otherwise.
- ``alarms``, ``status``, ``analysis``, ``published``: what people see, and which circuits a name means.
- ``wiring``: the model on paper.
"""
