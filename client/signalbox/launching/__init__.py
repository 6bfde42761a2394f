"""Announce a job for ``signalbox run`` while its command runs, with the hosts that its launcher names.

``launch`` finds the process that announces the job and the hosts of its ranks, from launchers (``mpi``, ``torch``) and
``schedulers``. ``child`` runs the command, ``announcement`` announces the job in a separate thread."""
