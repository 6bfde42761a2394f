"""Announce a job for ``signalbox run`` while its command runs, with the hosts that the command's launcher names.

``launch`` runs the command and announces the job. ``mpi`` finds the hosts of ``mpirun`` and of schedulers."""
