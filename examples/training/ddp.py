"""Train with PyTorch's DistributedDataParallel, one process per host; two lines are for Signalbox.

RANK=0 WORLD_SIZE=4 MASTER_ADDR=10.0.1.1 MASTER_PORT=29500 python ddp.py 100    # iterations
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import signalbox.torch

WIDTH = 173

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))))
signalbox.torch.join(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for iteration in range(int(sys.argv[1])):
    began = time.perf_counter()
    optimizer.zero_grad()
    model(torch.randn(4, WIDTH)).square().mean().backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"iteration {iteration} {time.perf_counter() - began:.3f} s", flush=True)
dist.destroy_process_group()
