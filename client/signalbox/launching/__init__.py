"""Announce a job for ``signalbox run`` while its command runs, with the hosts that its launcher names.

``launch`` finds the process that announces the job and the hosts of its ranks, ``mpi`` those of ``mpirun`` and of
schedulers. ``announcement`` runs the command, and announces the job in a separate thread."""
