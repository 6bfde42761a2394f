"""Command lines and environments of launchers: the job, its hosts, their ranks, and the announcing process."""

import shlex
import socket
from pathlib import Path

import pytest

from signalbox.errors import InvalidInput
from signalbox.job_ids import job_id_of_environment, rank_of
from signalbox.launching.launch import LOCAL, Launch, announces, is_own, launch_of


@pytest.mark.parametrize(
    ("environ", "job_id"),
    [
        ({}, None),
        ({"TORCHELASTIC_RUN_ID": "none"}, None),
        ({"TORCHELASTIC_RUN_ID": "run-3"}, "run-3"),
        ({"TORCHELASTIC_RUN_ID": "run-3", "SLURM_JOB_ID": "17"}, "slurm-17"),
        ({"TORCHELASTIC_RUN_ID": "run-3", "SLURM_JOB_ID": "17", "SIGNALBOX_JOB": "ring"}, "ring"),
    ],
)
def test_the_job_is_named_by_signalbox_run_or_slurm_or_torchrun(environ: dict[str, str], job_id: str | None) -> None:
    assert job_id_of_environment(environ) == job_id


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({}, None),
        ({"RANK": "first"}, None),
        ({"RANK": "3"}, 3),
        ({"PMI_RANK": "0", "SLURM_PROCID": "1"}, 0),
        ({"OMPI_COMM_WORLD_RANK": "0", "SLURM_PROCID": "2"}, 0),
        ({"SLURM_PROCID": "1", "RANK": "0"}, 1),
        ({"SLURM_PROCID": "0", "RANK": "8", "TORCHELASTIC_RUN_ID": "none"}, 8),
    ],
)
def test_the_rank_is_that_of_the_innermost_launcher(environ: dict[str, str], rank: int | None) -> None:
    assert rank_of(environ) == rank


SLURM = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": "2(x2),1", "SLURM_PROCID": "0"}
FILES = {
    "open-mpi": "# ours\nn1 slots=2 max_slots=4\nroot@n2 slots=2\nn3 slots = 1\n^n9\n",
    "hydra": "n1:2\nn2:2\n\nn3:1  # last\n",
    "repeated": "n1\nn1\nn2\n",
    "lines": "n1\nn1\nn2\nn2\nn3\n",
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)


def ranks(command: str, **environ: str) -> str | None:
    """Return the hosts of the ranks in short form: ``1122`` means two ranks on n1, then two on n2."""
    found = launch_of(shlex.split(command), environ).ranks
    return None if found is None else "".join(name.removeprefix("n") for name in found)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("mpirun -np 4 --host n1:2,n2:2 ./train", "1122"),
        ("mpirun -host n1:4,n2:4 -np 4 ./train --host n7,n8", "1111"),
        ("mpirun -np 4 --map-by node --host n1:2,n2:2 ./train", "1212"),
        ("mpirun -np 4 --bynode --host n1:3,n2:1 ./train", "1211"),
        ("mpirun -N 1 -machinefile open-mpi ./train", "123"),
        ("mpirun -pernode --default-hostfile open-mpi --mca btl tcp,self -x PATH ./train", "123"),
        ("mpirun --rankfile ranks --host n1:8,n2:8 ./train", "12"),
        ("mpirun --map-by ppr:2:node --host n1:8,n2:8 ./train", "1122"),
        ("mpirun --npernode 2 -np 3 --host n1:8,n2:8 ./train", "112"),
        ("mpirun --oversubscribe -np 5 --host n1:2,n2:1 ./train", "11211"),
        ("mpirun -np 3 --hostfile open-mpi ./train", "112"),
        ("mpirun --mca orte_default_hostfile open-mpi ./train", "11223"),
        ("mpirun --hostfile open-mpi --host n2:2,n3:1 -np 3 ./train", "223"),
        ("mpirun --host n2:2 --hostfile open-mpi ./train", "22"),
        ("mpirun --hostfile repeated -np 2 --map-by node ./train", "12"),
        ("mpirun --hostfile repeated -np 64 ./train", "12"),  # as many ranks per host as it has cores
        ("mpirun --map-by ppr:2:socket --host n1:8,n2:8 ./train", "12"),
        # The results are those of Open MPI 4.1.4 with --display-map --do-not-launch.
        ("mpirun -np 1 --host n1:2,n2:2 ./a : -np 2 ./b", "112"),
        ("mpirun -np 1 ./a : -np 2 --host n1:2,n2:2 ./b", "112"),
        ("mpirun -np 1 --hostfile open-mpi ./a : -np 3 --hostfile open-mpi ./b", "1122"),
        ("mpirun --host n1:2 --host n2:1 ./train", "112"),
        ("mpirun --map-by NODE -np 2 --host n1:2,n2:2 ./train", "12"),
        ("mpirun --map-by socket:span -np 2 --host n1:2,n2:2 ./train", "12"),
        ("mpirun --npersocket 1 -np 2 --host n2:2,n1:2 ./train", "21"),
        ("mpirun --mca rmaps_base_mapping_policy ppr:1:node --host n1:2,n2:2 ./train", "12"),
        ("mpirun -np 3 --host +n0,+n1 --hostfile open-mpi ./train", "123"),  # one too many
        ("mpirun -np 1 --host n1 ./master : -np 2 --host n2:2 ./worker", "122"),
        ("/opt/openmpi/bin/mpiexec --n=2 --host=n1,n2 ./train", "12"),
        ("orterun --allow-run-as-root --timeout 60 -wdir /tmp -np 2 -H n1,n2 ./train", "12"),
        ("mpiexec.hydra -hosts n1,n2 -ppn 2 -n 4 ./train", "1122"),
        ("mpiexec -genv NAME value -iface eth0 -f hydra -n 3 ./train", "112"),
    ],
)
def test_hosts_of_mpirun(command: str, expected: str) -> None:
    assert ranks(command) == expected


@pytest.mark.parametrize(
    "command", ["mpirun -np 4 ./train", "torchrun --nproc-per-node 8 train.py", "torchrun train.py"]
)
def test_without_hosts_a_launcher_starts_ranks_on_this_host(command: str) -> None:
    assert launch_of(shlex.split(command), {}).ranks == LOCAL


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("mpirun ./train", "11223"),
        ("mpirun --map-by ppr:1:node ./train", "123"),
        ("mpirun --host n2:2,n3 ./train", "223"),
        ("srun ./train", "11223"),
        ("srun -N 2 --nodelist=n[2-3] ./train", "23"),
        ("torchrun --nnodes 3 --nproc-per-node=2 train.py", "112233"),
        ("python3 -m torch.distributed.run --nnodes 3 --nproc_per_node gpu train.py", "123"),
        ("accelerate launch --num_machines 3 --multi_gpu --machine_rank 0 train.py", "123"),
        ("./train", "11223"),
    ],
)
def test_hosts_of_slurm(command: str, expected: str) -> None:
    assert ranks(command, **SLURM) == expected


def test_a_program_that_srun_has_started_is_on_the_hosts_of_its_step() -> None:
    step = {"SLURM_STEP_NODELIST": "n[2-3]", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    assert ranks("./train", **SLURM, **step) == "23"
    assert ranks("torchrun --nnodes 2 train.py", **SLURM, **step) == "23"
    assert ranks("mpirun ./train", **SLURM, **step) == "11223", "it uses all of the job"
    assert ranks("./train", **SLURM, **step, OMPI_COMM_WORLD_RANK="0") == "11223"
    assert ranks("./train", **{**SLURM, "SLURM_TASKS_PER_NODE": "2"}) == "123", "tasks that do not fit to the hosts"


@pytest.mark.parametrize("environ", [
    {"PBS_NODEFILE": "lines"},
    {"LSB_DJOB_HOSTFILE": "lines"},
    {"LSB_HOSTS": "n1 n1 n2 n2 n3"},
    {"OMPI_MCA_orte_default_hostfile": "open-mpi"},
    {"PRTE_MCA_prte_default_hostfile": "open-mpi"},
    {"HYDRA_HOST_FILE": "hydra"},
    {"I_MPI_HYDRA_HOST_FILE": "hydra"},
], ids=lambda environ: next(iter(environ)))  # fmt: skip
def test_hosts_of_the_environment(environ: dict[str, str]) -> None:
    assert ranks("mpirun ./train", **environ) == "11223"


def test_open_mpi_is_told_over_which_networks_it_communicates() -> None:
    networks = "10.0.0.0/16,eth1"
    by_option = launch_of(shlex.split(f"mpirun --mca btl_tcp_if_include {networks} -np 2 ./train"), {})
    by_environment = launch_of(["mpirun", "./train"], {"OMPI_MCA_btl_tcp_if_include": networks})
    assert by_option.interfaces == by_environment.interfaces == ("10.0.0.0/16", "eth1")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("./train.sh", "train.sh does not name hosts"),
        ("srun -N 2 ./train", "srun names no nodes, and there is no Slurm job"),
        ("torchrun --nnodes 2 train.py", "the launcher names only the host of its rendezvous"),
    ],
)
def test_hosts_that_are_not_said(command: str, why: str) -> None:
    assert launch_of(shlex.split(command), {}) == Launch(None, why)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("mpirun --hostfile missing ./train", "missing: No such file or directory"),
        ("mpirun -np four ./train", "-np four is not a number of ranks"),
        ("mpirun -np", "-np has no value"),
    ],
)
def test_what_cannot_be_read_is_named(command: str, said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        launch_of(shlex.split(command), {})
    assert str(error.value) == said


MEETING = "torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1:29500 train.py"


@pytest.mark.parametrize(
    ("command", "environ", "expected"),
    [
        ("./train", {}, True),
        ("./train", {"OMPI_COMM_WORLD_RANK": "1"}, False),
        ("./train", {"SLURM_PROCID": "1"}, False),
        ("mpirun -np 2 -H n1,n2 ./train", SLURM, True),
        ("torchrun --nnodes 2 --node-rank 0 train.py", {"RANK": "1"}, True),
        ("torchrun --nnodes 2 train.py", {"PET_NODE_RANK": "1"}, False),
        ("accelerate launch --num_machines 2 --machine_rank 1 train.py", {}, False),
        ("python -m torch.distributed.launch --nnodes=2 --node_rank=1 train.py", {}, False),
        (MEETING, {}, True),
        (MEETING, {"SLURM_PROCID": "1"}, False),
        ("torchrun --nnodes 2 train.py --node-rank 1", {}, True),
    ],
)
def test_only_the_first_rank_or_node_announces(command: str, environ: dict[str, str], expected: bool) -> None:
    assert announces(shlex.split(command), environ) is expected


@pytest.mark.parametrize(
    ("command", "environ", "only_on"),
    [
        (MEETING, {}, "n1"),
        ("torchrun --nnodes 2 --master-addr=10.0.1.1 train.py", {}, "10.0.1.1"),
        ("torchrun --nnodes 2 --rdzv-endpoint [fd00::1]:29500 train.py", {}, "fd00::1"),
        ("torchrun --nnodes 2 --node-rank 0 --master-addr n1 train.py", {}, ""),
        (MEETING, {"SLURM_PROCID": "0"}, ""),
        ("torchrun --standalone --nnodes 2 train.py", {}, ""),
    ],
)
def test_where_torchrun_meets_is_the_first_node(command: str, environ: dict[str, str], only_on: str) -> None:
    assert launch_of(shlex.split(command), environ).only_on == only_on


def test_an_address_of_this_machine_is_known_and_a_name_without_address_may_be_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")

    def getaddrinfo(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert is_own("n1")
