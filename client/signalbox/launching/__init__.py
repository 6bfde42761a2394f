"""Announce a job for ``signalbox run`` while its command runs, with the hosts that its launcher names.

``launch`` runs and announces the command, ``mpi`` finds the hosts of ``mpirun`` and of schedulers."""
