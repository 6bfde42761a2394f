"""A loop of PyTorch's ``all_reduce``, one process per host; two of its lines are Signalbox's.

RANK=0 WORLD_SIZE=4 MASTER_ADDR=10.0.1.1 MASTER_PORT=29500 python all_reduce.py 100    # iterations
"""

import sys
import time

import torch
import torch.distributed as dist

import signalbox.torch

dist.init_process_group("gloo")
signalbox.torch.join()
for iteration in range(int(sys.argv[1])):
    began = time.perf_counter()
    dist.all_reduce(torch.ones(120_120))
    time.sleep(0.1)  # in place of the computation
    if dist.get_rank() == 0:
        print(f"iteration {iteration} {time.perf_counter() - began:.3f} s", flush=True)
dist.destroy_process_group()
