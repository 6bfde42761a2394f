r"""Rank of a PyTorch job over Gloo, as a program inside its host's namespace; one process per rank.

    PYTHONPATH=.:client .venv-torch/bin/python -m mininet_topos.joining.gloo_rank --job a --rank 0 \
        --peers 10.0.1.1,10.0.2.1 --control DIR --out DIR

The program has the options of ``rank``, and writes the log of ``rank``. The process of rank 0 has the store, at
``STORE_PORT`` of its address.
"""

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from mininet_topos.joining.launch import STORE_PORT
from mininet_topos.joining.rank import Course, RankSpec, Report, Vector, options, part, ready, run, spec_of

TIMEOUT = timedelta(seconds=120)
LAYERS = 4
BUCKET_MB = 0.1
TRAININGS = ("ddp", "fsdp")


class Gloo:
    """Collectives of the default process group. See ``rank.Library``."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._trainings: dict[int, Training] = {}

    def run(self, collective: str, vector: Vector) -> Vector | None:
        """Run a collective, or with ``ddp`` and ``fsdp`` one training step of a model with M bytes of parameters.

        A training step returns None, since ``rank.expected`` cannot compute its result. It raises ``RuntimeError`` when
        its gradients are wrong."""
        tensor = torch.from_numpy(vector)
        own = torch.from_numpy(part(vector, self.rank, self.size))
        if collective == "barrier":
            dist.barrier()
        elif collective == "all_reduce":
            dist.all_reduce(tensor)
        elif collective == "broadcast":
            dist.broadcast(tensor, 0)
        elif collective == "all_gather":
            gathered = torch.empty_like(tensor)
            dist.all_gather_into_tensor(gathered, own.clone())
            return _array(gathered)
        elif collective == "reduce_scatter":
            scattered = torch.empty_like(own)
            dist.reduce_scatter_tensor(scattered, tensor)
            return _array(scattered)
        elif collective == "all_to_all":
            exchanged = torch.empty_like(tensor)
            dist.all_to_all_single(exchanged, tensor)
            return _array(exchanged)
        elif collective in TRAININGS:
            elements = len(vector)
            if elements not in self._trainings:
                self._trainings[elements] = Training(self.rank, self.size, elements, sharded=collective == "fsdp")
            self._trainings[elements].step()
            return None
        else:
            raise ValueError(f"no collective {collective!r}")
        return vector


class Training:
    """Training of a small model with about ``elements`` parameters: data parallel in several buckets, or fully sharded.

    The model has exactly ``elements`` parameters if this is 4·w·(w+1) with an integer w, such as 840 and 120,408."""

    def __init__(self, rank: int, size: int, elements: int, sharded: bool = False) -> None:
        torch.manual_seed(1)
        width = max(2, int((elements / LAYERS) ** 0.5))
        self._rank, self._size, self._width = rank, size, width
        self._step = 0
        self._sharded = sharded
        self._plain = _layers(width)
        self._model: Any
        if sharded:
            self._model = _layers(width)
            self._model.load_state_dict(self._plain.state_dict())
            for layer in self._model:
                fully_shard(layer)
            fully_shard(self._model)
        else:
            self._model = nn.parallel.DistributedDataParallel(self._plain, bucket_cap_mb=BUCKET_MB)
        models = [self._plain, self._model] if sharded else [self._plain]
        self._optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]

    def step(self) -> None:
        """Run forward pass, backward pass and optimizer. Raises ``RuntimeError`` when the gradients are wrong.

        The gradients must be the mean of the gradients for every rank's batch, which this rank computes by itself."""
        parameters = list(self._plain.parameters())
        of_each = [torch.autograd.grad(_loss(self._plain, self._batch(r)), parameters) for r in range(self._size)]
        self._model.zero_grad()
        _loss(self._model, self._batch(self._rank)).backward()
        for own, parameter, *gradients in zip(self._model.parameters(), parameters, *of_each, strict=True):
            right = torch.stack(gradients).mean(0)
            if self._sharded:
                parameter.grad, right = right, torch.chunk(right, self._size)[self._rank]
            found = own.grad.to_local() if self._sharded else own.grad
            if found is None or not torch.allclose(found, right, rtol=1e-3, atol=1e-6):
                raise RuntimeError(f"the gradients of step {self._step} are wrong")
        for optimizer in self._optimizers:
            optimizer.step()
        self._step += 1

    def _batch(self, rank: int) -> torch.Tensor:
        return torch.randn(4, self._width, generator=torch.Generator().manual_seed(1000 * self._step + rank))


def _layers(width: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(LAYERS)))


def _loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return (model(batch) - batch).square().mean()


def _array(tensor: torch.Tensor) -> Vector:
    found: np.ndarray[Any, Any] = tensor.numpy()
    return found


def prepare() -> None:
    """Import the modules that the first ``DistributedDataParallel`` and optimizer would import; this takes seconds."""
    torch.set_num_threads(1)
    importlib.import_module("torch._dynamo")


@contextmanager
def joined(spec: RankSpec, address: str, recorded: bool) -> Iterator[Report]:
    """Join the controller at the address, as user programs do, and yield the function that reports iterations.

    ``recorded``: ``signalbox.torch.join`` records the traffic of the job; otherwise only the job's hosts are announced.
    All ranks must call this function."""
    if recorded:
        import signalbox.torch

        job: Any = signalbox.torch.join(job=spec.job_id, endpoint=spec.peers[spec.rank], address=address)
    else:
        import signalbox

        job = signalbox.join(spec.job_id, endpoints=spec.peers, rank=spec.rank, address=address)
    with job:
        yield lambda done: job.iteration(done.duration_s, done.communication_s)


def main(argv: Sequence[str] | None = None, report: Report | None = None) -> int:
    """Run the rank; return 1 when a result was wrong. ``report`` is called after each iteration."""
    parser = options("One rank of a PyTorch job over Gloo.")
    parser.add_argument("--interface", required=True, help="Network interface that Gloo uses.")
    parser.add_argument("--join", metavar="ADDRESS", help="Address of the controller to join.")
    parser.add_argument("--recorded", action="store_true", help="Use signalbox.torch.join, which records traffic.")
    given = parser.parse_args(argv)
    spec = spec_of(given, given.rank)
    os.environ["GLOO_SOCKET_IFNAME"] = given.interface
    torch.set_num_threads(1)
    store = dist.TCPStore(spec.peers[0], STORE_PORT, spec.size, spec.rank == 0, TIMEOUT)
    if any(name in spec.collective for name in TRAININGS):
        prepare()
    ready(spec.control, spec.rank)
    Course(spec.control, spec.rank).wait()
    ours = dist.PrefixStore("job", store)
    dist.init_process_group("gloo", store=ours, rank=spec.rank, world_size=spec.size, timeout=TIMEOUT)
    with joined(spec, given.join, given.recorded) if given.join else nullcontext(report) as reported:
        right = run(spec, Gloo(spec.rank, spec.size), reported)
    dist.barrier()
    dist.destroy_process_group()
    # Rank 0 owns the store and leaves last, after the others have reported that they are done.
    store.set(f"left-{spec.rank}", "")
    if spec.rank == 0:
        store.wait([f"left-{rank}" for rank in range(spec.size)])
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
