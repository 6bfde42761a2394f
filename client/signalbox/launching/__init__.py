"""Announce a job for ``signalbox run`` while its command runs, with the hosts that its launcher names.

``launch`` finds who announces the job and which hosts its ranks are on, from launchers (``mpi``, ``torch``) and
``schedulers``. ``child`` runs the command, ``announcement`` announces the job in a separate thread."""
