"""Program of one rank of PyTorch that trains in several ways, each a job.

A job's id is its kind. The job runs at least ``ITERATIONS``, and until the folder has a file with the name of the kind.
Modules that take two seconds to import are imported where they are needed."""

import gc
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.device_mesh import init_device_mesh

import signalbox.torch
from signalbox.torch import joining

ITERATIONS = 6
DEADLINE_S = 120.0
WIDTH = 20
LAYERS = 4
COMPUTED_S = 0.3
"""Seconds that a rank computes while a call is under way."""
LATE_S = 0.1

Iteration = Callable[[Any], object]
"""Function that runs one iteration of the given job."""


def model() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def training(wrapped: Any) -> tuple[Any, Iteration]:
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)

    def iteration(_: Any) -> None:
        optimizer.zero_grad()
        wrapped(torch.ones(2, WIDTH)).sum().backward()
        optimizer.step()

    return wrapped, iteration


def ddp() -> tuple[Any, Iteration]:
    return training(nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.001))


def hooked() -> tuple[Any, Iteration]:
    """Send gradients in half precision by a hook of the program."""
    wrapped = nn.parallel.DistributedDataParallel(model())
    wrapped.register_comm_hook(None, fp16_compress_hook)
    return training(wrapped)


def closures() -> tuple[Any, Iteration]:
    """Train with an optimizer that computes gradients several times in each of its steps."""
    wrapped = nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.LBFGS(wrapped.parameters(), lr=1e-9, max_iter=3, tolerance_grad=0, tolerance_change=0)

    def closure() -> float:
        optimizer.zero_grad()
        loss = wrapped(torch.ones(2, WIDTH)).sum()
        loss.backward()
        return float(loss.detach())

    return wrapped, lambda _: optimizer.step(closure)


def tensor() -> tuple[Any, Iteration]:
    """Divide layers by columns and by rows in turn; the outputs of each pair of layers are added up."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tensor",))
    plan = {str(layer): RowwiseParallel() if layer % 2 else ColwiseParallel() for layer in range(LAYERS)}
    return mesh, training(parallelize_module(model(), mesh, plan))[1]


def fsdp1() -> tuple[Any, Iteration]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return training(FullyShardedDataParallel(model(), device_id=torch.device("cpu")))


def fsdp2() -> tuple[Any, Iteration]:
    from torch.distributed.fsdp import fully_shard

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
    """Broadcast from the last rank to all ranks, and reduce from all ranks to the last one."""

    def iteration(job: Any) -> None:
        with job.step():
            dist.broadcast(torch.ones(1000), dist.get_world_size() - 1)
            dist.reduce(torch.ones(500), dist.get_world_size() - 1)

    return None, iteration


def overlapping() -> tuple[Any, Iteration]:
    """Overlap a sum of two ranks and a sum of all ranks, neither of which waits for the other; then run an all-gather.

    The other ranks join the sum of all ranks late, so that it is still running when the two ranks begin their sum."""
    two = dist.new_group([0, 1])

    def iteration(job: Any) -> None:
        with job.step():
            if dist.get_rank() >= 2:
                time.sleep(LATE_S)
            works = [dist.all_reduce(torch.ones(100), async_op=True)]
            if dist.get_rank() < 2:
                works.append(dist.all_reduce(torch.ones(200), group=two, async_op=True))
            for work in works:
                work.wait()
            dist.all_gather([torch.ones(10) for _ in range(dist.get_world_size())], torch.ones(10))

    return {"two": two}, iteration


def pipeline() -> tuple[Any, Iteration]:
    """Pass four micro-batches forwards and backwards in one dimension of a mesh, then sum over the other dimension."""
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
    """Let rank 1 join with an object that is not a model."""
    wrapped, iteration = ddp()
    return (wrapped if dist.get_rank() != 1 else "no model"), iteration


def misplaced() -> tuple[Any, Iteration]:
    """Give an invalid address to rank 0, and none to rank 1, which finds its own."""
    os.environ.pop("GLOO_SOCKET_IFNAME")
    return ddp()


def alone() -> tuple[Any, Iteration]:
    joining.MEET_S = 0.5
    return ddp()


def offering() -> tuple[Any, Iteration]:
    """Let the program itself describe its traffic."""
    return ddp()


def nowhere() -> tuple[Any, Iteration]:
    """Join where there is no controller."""
    return ddp()


def nameless() -> tuple[Any, Iteration]:
    """Join a job without an id."""
    return ddp()


def given_to_join(kind: str, rank: int) -> dict[str, Any]:
    given = {"job": kind, "endpoint": endpoint_of(kind, rank), "lease_s": 30.0}
    if kind == "offering":
        given["parallelizations"] = [{"name": "by hand", "transfers": [{"src": 0, "dst": 1, "bytes_per_iteration": 7}]}]
    if kind == "nowhere":
        given["address"] = "127.0.0.1:1"
    if kind == "nameless":
        given["job"] = None
    return given


def endpoint_of(kind: str, rank: int) -> Any:
    if kind == "misplaced":
        return None if rank else 7
    return f"10.0.{rank + 1}.1"


def main(folder: str, *kinds: str) -> None:
    """Run the kinds one after the other; the first one may be ``page``, for the programs of the guide."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.set_num_threads(1)
    if kinds[0] == "page":
        from tests.support.torch.page import run_programs

        run_programs()
        kinds = kinds[1:]
    else:
        dist.init_process_group("gloo")
    rank = dist.get_rank()
    for kind in kinds:
        given, iteration = {made.__name__: made for made in KINDS}[kind]()
        job: Any = nullcontext()
        if kind != "alone" or rank == 0:
            job = signalbox.torch.join(given, **given_to_join(kind, rank))
        with job:
            for _ in range(ITERATIONS):
                iteration(job)
            deadline = time.monotonic() + DEADLINE_S
            while not Path(folder, kind).exists() and time.monotonic() < deadline:
                time.sleep(0.02)
        logging.info("%s ended", kind)
    # Free the models before the process group. Otherwise, with PyTorch 2.13 and Gloo, the program hangs at its end one
    # time in ten after a call such as the barrier, even without Signalbox.
    del given, iteration, job
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()
    logging.info("compiler is%s loaded", "" if "torch._dynamo" in sys.modules else " not")


KINDS: tuple[Callable[[], tuple[Any, Iteration]], ...] = (ddp, closures, tensor, hooked, fsdp1, fsdp2, plain, roots)
KINDS += (overlapping, pipeline, offering, nowhere, nameless, broken, misplaced, alone)
