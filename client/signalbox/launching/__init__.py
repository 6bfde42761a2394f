"""``signalbox run``: announce a job for as long as a command runs, with the hosts that its launcher names.

``launch`` says who announces the job and which hosts its ranks have, from launchers (``mpi``, ``torch``) and
``schedulers``.
``child`` runs the command, ``announcement`` announces it in a thread beside it.
"""
