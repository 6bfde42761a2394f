"""Programs of docs/how-to/join-from-pytorch.md, run by a rank that has not initialised its process group."""

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

PAGE = Page(Path(__file__).parents[3] / "docs" / "how-to" / "join-from-pytorch.md")


def run_programs() -> None:
    """Run all programs; the first one initialises the process group.

    Loopback addresses are not announced, so the ranks get other addresses."""
    jobs: list[Any] = []
    join = signalbox.torch.join

    def joined(*given: Any, **more: Any) -> Any:
        # Strict, because a short program may end before its job begins.
        jobs.append(join(*given, **more, strict=True))
        return jobs[-1]

    names: dict[str, Any] = {
        "dist": dist, "DistributedDataParallel": DistributedDataParallel, "SGD": SGD,
        "Model": lambda: torch.nn.Linear(10, 10), "batches": [torch.ones(10) for _ in range(6)],
        "fully_shard": fully_shard, "init_device_mesh": init_device_mesh, "signalbox": signalbox,
    }  # fmt: skip
    address = patch.object(joining, "own_address", lambda *_: f"10.0.{dist.get_rank() + 1}.1")
    with patch.object(signalbox.torch, "join", joined), address:
        for program in (block.text for block in PAGE.blocks if block.language == "python"):
            exec(compile(program, PAGE.path, "exec"), names)
            while jobs:
                jobs.pop().leave()
