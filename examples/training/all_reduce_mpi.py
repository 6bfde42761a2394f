"""Run MPI's Allreduce in a loop, without any code for Signalbox.

signalbox run --job ring -- mpirun --host n1,n2,n3,n4 python3 all_reduce_mpi.py 100    # iterations
"""

import sys
import time

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
sums = np.empty(120_120, dtype=np.float32)
for iteration in range(int(sys.argv[1])):
    began = time.perf_counter()
    world.Allreduce(np.ones_like(sums), sums)
    time.sleep(0.1)  # stands for the computation
    if world.rank == 0:
        print(f"iteration {iteration} {time.perf_counter() - began:.3f} s", flush=True)
