"""One rank of a PyTorch program that trains in several ways, each a job of its own: python ranks.py FOLDER KIND...

A job's id is its kind. It goes on in steps while FOLDER has no file of that name, and at least ``ITERATIONS``.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import signalbox.torch

ITERATIONS = 6
DEADLINE_S = 120.0
WIDTH = 20
LAYERS = 4
COMPUTED_S = 0.3
"""While a call is under way."""

Iteration = Callable[[Any], object]
"""Given the job."""


def model() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def training(wrapped: Any, optimizer: Any = None) -> tuple[Any, Iteration]:
    optimizer = optimizer or torch.optim.SGD(wrapped.parameters(), lr=0.01)

    def iteration(_: Any) -> None:
        optimizer.zero_grad()
        wrapped(torch.ones(2, WIDTH)).sum().backward()
        optimizer.step()

    return wrapped, iteration


def ddp() -> tuple[Any, Iteration]:
    return training(nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.001))


def hooked() -> tuple[Any, Iteration]:
    """Gradients are sent in half precision by a hook of the program's own."""
    wrapped = nn.parallel.DistributedDataParallel(model())
    wrapped.register_comm_hook(None, fp16_compress_hook)
    return training(wrapped)


def static() -> tuple[Any, Iteration]:
    return training(nn.parallel.DistributedDataParallel(model(), static_graph=True))


def compiled() -> tuple[Any, Iteration]:
    """Without a compiler of C++, which the machine may not have."""
    return training(torch.compile(nn.parallel.DistributedDataParallel(model()), backend="aot_eager"))


def zero() -> tuple[Any, Iteration]:
    """Each rank has half of the optimizer's state, and sends its half of the parameters to the other."""
    wrapped = nn.parallel.DistributedDataParallel(model())
    shared = ZeroRedundancyOptimizer(wrapped.parameters(), optimizer_class=torch.optim.SGD, lr=0.01)
    return training(wrapped, shared)


def closures() -> tuple[Any, Iteration]:
    """The optimizer asks for gradients several times in each of its steps."""
    wrapped = nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.LBFGS(wrapped.parameters(), lr=1e-9, max_iter=3, tolerance_grad=0, tolerance_change=0)

    def closure() -> float:
        optimizer.zero_grad()
        loss = wrapped(torch.ones(2, WIDTH)).sum()
        loss.backward()
        return float(loss)

    return wrapped, lambda _: optimizer.step(closure)


def tensor() -> tuple[Any, Iteration]:
    """Layers are divided by columns and by rows, in turn: the outputs of each pair of layers are added up."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tensor",))
    plan = {str(layer): RowwiseParallel() if layer % 2 else ColwiseParallel() for layer in range(LAYERS)}
    return mesh, training(parallelize_module(model(), mesh, plan))[1]


def loading() -> tuple[Any, Iteration]:
    """Batches come from processes that are forked, and from others that are spawned."""
    wrapped = nn.parallel.DistributedDataParallel(model())
    _, iteration = training(wrapped)
    data = torch.ones(ITERATIONS, WIDTH)

    def loads(job: Any) -> None:
        for how in ("fork", "spawn"):
            assert len(list(torch.utils.data.DataLoader(data, num_workers=1, multiprocessing_context=how)))
        iteration(job)

    return wrapped, loads


def fsdp1() -> tuple[Any, Iteration]:
    return training(FullyShardedDataParallel(model(), device_id=torch.device("cpu")))


def fsdp2() -> tuple[Any, Iteration]:
    sharded = model()
    for layer in sharded:
        fully_shard(layer)
    return training(fully_shard(sharded))


def plain() -> tuple[Any, Iteration]:
    def iteration(job: Any) -> None:
        with job.step():
            dist.all_reduce(torch.ones(1000))
            work = dist.all_reduce(torch.ones(500), async_op=True)
            time.sleep(COMPUTED_S)
            work.wait()

    return None, iteration


def roots() -> tuple[Any, Iteration]:
    """The last rank sends to all, and all add up at it."""

    def iteration(job: Any) -> None:
        with job.step():
            dist.broadcast(torch.ones(1000), dist.get_world_size() - 1)
            dist.reduce(torch.ones(500), dist.get_world_size() - 1)

    return None, iteration


def overlapping() -> tuple[Any, Iteration]:
    """A sum of two ranks and one of all, of which neither waits for the other; then an all-gather."""
    two = dist.new_group([0, 1])

    def iteration(job: Any) -> None:
        with job.step():
            works = [dist.all_reduce(torch.ones(100), async_op=True)]
            if dist.get_rank() < 2:
                works.append(dist.all_reduce(torch.ones(200), group=two, async_op=True))
            for work in works:
                work.wait()
            dist.all_gather([torch.ones(10) for _ in range(dist.get_world_size())], torch.ones(10))

    return {"two": two}, iteration


def pipeline() -> tuple[Any, Iteration]:
    """Four micro-batches forwards and backwards over a mesh's dimension, then a sum over the other one."""
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("data", "pipeline"))
    stages = mesh.get_group("pipeline")
    stage, other = stages.rank(), 1 - stages.rank()

    def iteration(job: Any) -> None:
        with job.step():
            for forwards in [True, False] * 4:
                if (stage == 0) is forwards:
                    dist.send(torch.ones(250), group=stages, group_dst=other)
                else:
                    dist.recv(torch.ones(250), group=stages, group_src=other)
            dist.all_reduce(torch.ones(2000), group=mesh.get_group("data"))

    return mesh, iteration


def broken() -> tuple[Any, Iteration]:
    """Rank 1 joins with what is no model."""
    wrapped, iteration = ddp()
    return (wrapped if dist.get_rank() != 1 else "no model"), iteration


def misplaced() -> tuple[Any, Iteration]:
    """Rank 0 gives what is no address; rank 1 gives none, and looks for its own."""
    os.environ.pop("GLOO_SOCKET_IFNAME")
    return ddp()


def endpoint_of(kind: str, rank: int) -> Any:
    if kind == "misplaced":
        return None if rank else 7
    return f"10.0.{rank + 1}.1"


def main(folder: Path, kinds: list[str]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for kind in kinds:
        given, iteration = {made.__name__: made for made in KINDS}[kind]()
        job = signalbox.torch.join(given, job=kind, endpoint=endpoint_of(kind, rank), lease_s=30.0)
        for _ in range(ITERATIONS):
            iteration(job)
        deadline = time.monotonic() + DEADLINE_S
        while not (folder / kind).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        job.leave()
        logging.info("%s ended", kind)
    dist.barrier()
    dist.destroy_process_group()


KINDS = (
    ddp,
    static,
    compiled,
    zero,
    closures,
    tensor,
    loading,
    hooked,
    fsdp1,
    fsdp2,
    plain,
    roots,
    overlapping,
    pipeline,
    broken,
    misplaced,
)

if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main(Path(sys.argv[1]), sys.argv[2:])
