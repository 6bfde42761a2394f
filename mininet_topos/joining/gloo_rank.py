"""One rank of a PyTorch job over Gloo, as a program inside its host's namespace; one process per rank.

    PYTHONPATH=.:client .venv-torch/bin/python -m mininet_topos.joining.gloo_rank --job a --rank 0 \\
        --peers 10.0.1.1,10.0.2.1 --control DIR --out DIR

In: the options of ``rank``. Out: its log. The store is a process of rank 0 at ``STORE_PORT`` of its address. Every
round makes a new process group: new connections, from new ephemeral ports.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from mininet_topos.joining.connections import uses_ports
from mininet_topos.joining.launch import STORE_PORT
from mininet_topos.joining.rank import Report, Round, Vector, options, part, ready, run_round, spec_of
from mininet_topos.joining.wire import measure

TIMEOUT = timedelta(seconds=120)
LAYERS = 4
BUCKET_MB = 0.1


class Gloo:
    """The default process group's collectives. See ``rank.Library``."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._trainings: dict[int, Training] = {}

    def run(self, collective: str, vector: Vector) -> Vector | None:
        """Also ``ddp``: one training step, whose gradients have M bytes. It returns what ``rank.expected`` cannot know
        only when the gradients are right. Raises ``RuntimeError`` when they are wrong."""
        tensor = torch.from_numpy(vector)
        own = torch.from_numpy(part(vector, self.rank, self.size))
        if collective == "barrier":
            dist.barrier()
        elif collective == "all_reduce":
            dist.all_reduce(tensor)
        elif collective == "broadcast":
            dist.broadcast(tensor, 0)
        elif collective == "reduce":
            dist.reduce(tensor, 0)
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
        elif collective == "ddp":
            elements = len(vector)
            if elements not in self._trainings:
                self._trainings[elements] = Training(self.rank, self.size, elements)
            self._trainings[elements].step()
            return None
        else:
            raise ValueError(f"no collective {collective!r}")
        return vector


class Training:
    """Distributed data parallel training of a small model with about ``elements`` parameters, in several buckets.

    Exactly as many for 4·w·(w+1) with a whole w, such as 840 and 120,408.
    """

    def __init__(self, rank: int, size: int, elements: int) -> None:
        torch.manual_seed(1)
        width = max(2, int((elements / LAYERS) ** 0.5))
        self._rank, self._size, self._width = rank, size, width
        self._step = 0
        self._plain = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(LAYERS)))
        self._model = nn.parallel.DistributedDataParallel(self._plain, bucket_cap_mb=BUCKET_MB)
        self._optimizer = torch.optim.SGD(self._plain.parameters(), lr=0.01)

    def step(self) -> None:
        """Forward, backward, the optimizer. The gradients must be the mean of those of every rank's batch, which this
        rank computes for itself. Raises ``RuntimeError`` when they are not."""
        parameters = list(self._plain.parameters())
        of_each = [torch.autograd.grad(_loss(self._plain, self._batch(r)), parameters) for r in range(self._size)]
        self._optimizer.zero_grad()
        _loss(self._model, self._batch(self._rank)).backward()
        for parameter, *gradients in zip(parameters, *of_each, strict=True):
            right = torch.stack(gradients).mean(0)
            if parameter.grad is None or not torch.allclose(parameter.grad, right, rtol=1e-3, atol=1e-6):
                raise RuntimeError(f"the gradients of step {self._step} are wrong")
        self._optimizer.step()
        self._step += 1

    def _batch(self, rank: int) -> torch.Tensor:
        return torch.randn(4, self._width, generator=torch.Generator().manual_seed(1000 * self._step + rank))


def _loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return (model(batch) - batch).square().mean()


def _array(tensor: torch.Tensor) -> Vector:
    found: np.ndarray[Any, Any] = tensor.numpy()
    return found


def main(argv: Sequence[str] | None = None, report: Report | None = None) -> int:
    """``report``: called after each iteration. Returns 1 when a result was wrong."""
    parser = options("One rank of a PyTorch job over Gloo.")
    parser.add_argument("--interface", required=True, help="the network interface that Gloo uses")
    parser.add_argument("--wire", type=Path, help="measure the cases of this file instead of training")
    given = parser.parse_args(argv)
    spec = spec_of(given, given.rank)
    os.environ["GLOO_SOCKET_IFNAME"] = given.interface
    torch.set_num_threads(1)
    store = dist.TCPStore(spec.peers[0], STORE_PORT, spec.size, spec.rank == 0, TIMEOUT)
    right, of_store = True, uses_ports({STORE_PORT})
    if spec.collective == "ddp":
        importlib.import_module("torch._dynamo")  # by the first DistributedDataParallel otherwise: many seconds
    ready(spec.control, spec.rank)
    for number in range(spec.rounds):
        Round(spec.control, number, spec.rank).wait()
        ours = dist.PrefixStore(str(number), store)
        dist.init_process_group("gloo", store=ours, rank=spec.rank, world_size=spec.size, timeout=TIMEOUT)
        library = Gloo(spec.rank, spec.size)
        if given.wire:
            measure(library, spec.peers, given.wire, spec.out, lambda c: not of_store(c))
        else:
            right = run_round(spec, library, number, report, lambda c: not of_store(c)) and right
        dist.barrier()
        dist.destroy_process_group()
    # Rank 0 owns the store and leaves last: the others say goodbye first.
    store.set(f"left-{spec.rank}", "")
    if spec.rank == 0:
        store.wait([f"left-{rank}" for rank in range(spec.size)])
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
