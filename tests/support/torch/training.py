"""Run one rank of a training that joins with two lines: python training.py ITERATIONS WIDTH."""

import logging
import sys

import torch
import torch.distributed as dist

import signalbox.torch

logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(name)s %(message)s", datefmt="%H:%M:%S")
iterations, width = map(int, sys.argv[1:])
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(width, width))
logging.info("joins")
signalbox.torch.join(model, job="vision")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(iterations):
    optimizer.zero_grad()
    model(torch.ones(2, width)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
