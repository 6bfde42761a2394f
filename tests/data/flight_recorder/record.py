"""Records what PyTorch's flight recorder writes: four ranks with Gloo on loopback, and a group for each pair of them.

TORCH_FR_BUFFER_SIZE=2000 GLOO_SOCKET_IFNAME=lo .venv-torch/bin/python tests/data/flight_recorder/record.py FOLDER
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

RANKS = 4


def main(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29561", rank=rank, world_size=RANKS)
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    for _ in range(4):
        model(torch.ones(2, 16)).sum().backward()
        dist.all_reduce(torch.ones(6), group=pairs[rank // 2])
        dist.reduce_scatter_tensor(torch.ones(3), torch.ones(3 * RANKS))
        dist.all_gather_into_tensor(torch.ones(3 * RANKS), torch.ones(3))
        dist.broadcast(torch.ones(5), 0)
        dist.barrier()
    Path(folder, f"rank_{rank}").write_bytes(_dump_fr_trace(includeStackTraces=False))
    if rank == 0:
        Path(folder, "rank_0.json").write_bytes(_dump_fr_trace_json())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    start_processes(main, (sys.argv[1],), nprocs=RANKS, start_method="fork")
