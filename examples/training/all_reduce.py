"""Run PyTorch's ``all_reduce`` in a loop, one process per host; two lines are for Signalbox.

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
    time.sleep(0.1)  # stands for the computation
    if dist.get_rank() == 0:
        print(f"iteration {iteration} {time.perf_counter() - began:.3f} s", flush=True)
dist.destroy_process_group()
