"""Rank of an Open MPI job, as a program that ``mpirun`` starts inside its host's namespace.

    PYTHONPATH=.:client mpirun … /usr/bin/python3 -m mininet_topos.joining.mpi_rank --job a --peers 10.0.1.1,10.0.2.1 …

The program has the options of ``rank``, except that MPI provides the rank's number, and writes the log of ``rank``. The
options of mpirun choose the algorithm (``launch.mpirun``).
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mpi4py import MPI

from mininet_topos.joining.rank import Course, Report, Vector, options, part, run, spec_of

AUTOGROUP = Path("/proc/self/autogroup")
"""Niceness of this session's autogroup: Linux shares processors between autogroups, and the niceness of a process
counts only within its autogroup (sched(7), "The autogroup feature")."""


class OpenMpi:
    """Collectives of ``MPI_COMM_WORLD``, the communicator of all ranks. See ``rank.Library``."""

    def __init__(self) -> None:
        self._world = MPI.COMM_WORLD
        self.rank: int = self._world.Get_rank()
        self.size: int = self._world.Get_size()

    def run(self, collective: str, vector: Vector) -> Vector | None:
        own = part(vector, self.rank, self.size)
        result = np.empty_like(vector)
        if collective == "barrier":
            self._world.Barrier()
        elif collective == "all_reduce":
            self._world.Allreduce(vector, result)
        elif collective == "all_gather":
            self._world.Allgather(own.copy(), result)
        elif collective == "reduce_scatter":
            result = np.empty_like(own)
            self._world.Reduce_scatter(vector, result, [len(own)] * self.size)
        elif collective == "broadcast":
            self._world.Bcast(vector, 0)
            return vector
        elif collective == "all_to_all":
            self._world.Alltoall(vector, result)
        else:
            raise ValueError(f"no collective {collective!r}")
        return result


def main(argv: Sequence[str] | None = None, report: Report | None = None) -> int:
    """Run the rank; return 1 when a result was wrong. ``report`` is called after each iteration."""
    given = options("One rank of an Open MPI job.").parse_args(argv)
    if AUTOGROUP.exists():
        AUTOGROUP.write_text("19")  # ranks poll without pause; this gives the switches on the same processors priority
    library = OpenMpi()
    spec = spec_of(given, library.rank)
    Course(spec.control, spec.rank).wait()
    return 0 if run(spec, library, report) else 1


if __name__ == "__main__":
    sys.exit(main())
