"""Run one rank of the programs of docs/how-to/join-from-pytorch.md: python page.py FOLDER.

Each program continues when FOLDER has a file with its number. Loopback addresses are not announced, so the ranks get
other addresses."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

import signalbox.torch
from signalbox.torch import joining
from tests.support.doc_pages import Page

DEADLINE_S = 120.0
PAGE = Page(Path(__file__).parents[3] / "docs" / "how-to" / "join-from-pytorch.md")


def main(folder: Path) -> None:
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    jobs: list[Any] = []
    join = signalbox.torch.join

    def joined(*given: Any, **more: Any) -> Any:
        # Strict, because a short program may end before its job begins.
        jobs.append(join(*given, **more, strict=True))
        return jobs[-1]

    signalbox.torch.join = joined
    patch.object(joining, "own_address", lambda *_: f"10.0.{dist.get_rank() + 1}.1").start()
    names: dict[str, Any] = {
        "dist": dist,
        "DistributedDataParallel": DistributedDataParallel,
        "SGD": SGD,
        "Model": lambda: torch.nn.Linear(10, 10),
        "batches": [torch.ones(10) for _ in range(6)],
        "fully_shard": fully_shard,
        "init_device_mesh": init_device_mesh,
        "signalbox": signalbox,
    }
    programs = [block.text for block in PAGE.blocks if block.language == "python"]
    for number, program in enumerate(programs):
        exec(compile(program, PAGE.path, "exec"), names)
        deadline = time.monotonic() + DEADLINE_S
        while not (folder / str(number)).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        while jobs:
            jobs.pop().leave()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
