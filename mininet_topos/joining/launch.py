"""Commands that start ranks in network namespaces, and the locations of their programs.

This module chooses the Python interpreter for each library. PyTorch's environment is ``.venv-torch`` or the one that
``SIGNALBOX_TORCH`` names (``scripts/bootstrap.sh --libraries`` makes it); Open MPI's Python package is the system's.
"""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENTER = Path(__file__).with_name("enter.sh")
SYSTEM_PYTHON = "/usr/bin/python3"
ENVIRONMENT = {"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

TORCH_ENVIRONMENT = {**ENVIRONMENT, "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{sysconfig.get_path('purelib')}"}
"""Environment of ranks that join by themselves. PyTorch's environment lacks the packages that the client needs."""

STORE_PORT = 29_500
"""Port of the store of PyTorch's jobs, at the address of rank 0."""

DATA_PORTS = range(20_000, 21_000)
"""Ports on which ranks of Open MPI listen for each other; not ephemeral, so that nothing else uses them."""

TUNED: Mapping[str, Mapping[str, int]] = {
    "default": {},
    "ring": {"allreduce": 4},
    "recursive_doubling": {"allreduce": 3},
}
"""Algorithms of Open MPI's ``tuned`` component, by variant: number of the algorithm by collective (``ompi_info --param
coll tuned --level 9``)."""


def torch_python() -> Path:
    return Path(os.environ.get("SIGNALBOX_TORCH", ROOT / ".venv-torch")) / "bin" / "python"


@cache
def missing() -> Mapping[str, str]:
    """Return the reason why a library cannot run here, by library (``gloo``, ``open-mpi``); empty when all can."""
    found = {}
    if not torch_python().exists():
        found["gloo"] = f"there is no {torch_python()}; run scripts/bootstrap.sh --libraries"
    if not shutil.which("mpirun") or subprocess.run([SYSTEM_PYTHON, "-c", "import mpi4py, numpy"]).returncode:
        found["open-mpi"] = "there is no Open MPI with mpi4py; run scripts/bootstrap.sh --libraries"
    return found


def gloo_rank(rank: int, interface: str, words: Sequence[str]) -> list[str]:
    """Return the command of one rank. ``words``: options that all ranks of the job share."""
    return [str(torch_python()), "-m", "mininet_topos.joining.gloo_rank", *gloo_words(rank, interface, words)]


def gloo_words(rank: int, interface: str, words: Sequence[str]) -> list[str]:
    """Return the options of one rank. ``words``: options that all ranks of the job share."""
    return ["--rank", str(rank), "--interface", interface, *words]


def mpi_settings(
    namespaces: Sequence[str], subnet: str, session: Path, tuned: Mapping[str, int] | None = None
) -> list[str]:
    """Return mpirun's options for nodes n0, n1, … in these network namespaces.

    ``subnet``: subnet of the addresses that MPI uses. ``session``: directory of this mpirun alone. Without it, runs
    would share a directory under /tmp, since their nodes have the same names, and one run could remove the directory
    while another creates it. ``tuned``: see ``TUNED``."""
    settings = {
        "orte_tmpdir_base": session,
        "plm_rsh_agent": f"{ENTER} {','.join(namespaces)}",
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": subnet,
        "oob_tcp_if_include": subnet,
        "btl_tcp_port_min_v4": DATA_PORTS.start,
        "btl_tcp_port_range_v4": len(DATA_PORTS),
        "mpi_yield_when_idle": 1,
        "orte_abort_on_non_zero_status": 1,
        **({"coll_tuned_use_dynamic_rules": 1} if tuned else {}),
        **{f"coll_tuned_{name}_algorithm": number for name, number in (tuned or {}).items()},
    }
    nodes = ",".join(f"n{rank}" for rank in range(len(namespaces)))
    return [
        "--allow-run-as-root",
        *("--host", nodes, "--map-by", "node", "--bind-to", "none", "-np", str(len(namespaces))),
        *(word for name, value in settings.items() for word in ("--mca", name, str(value))),
    ]


def mpirun(
    namespaces: Sequence[str], subnet: str, session: Path, words: Sequence[str], tuned: Mapping[str, int]
) -> list[str]:
    """Return the command that starts one rank in each namespace, in their order; to be run in the first namespace.

    The parameters are as for ``mpi_settings``."""
    return [
        "mpirun",
        *mpi_settings(namespaces, subnet, session, tuned),
        *(word for name in ENVIRONMENT for word in ("-x", name)),
        *(SYSTEM_PYTHON, "-m", "mininet_topos.joining.mpi_rank", *words),
    ]
