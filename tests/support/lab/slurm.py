"""Private Slurm cluster: one munged, one slurmctld, and a slurmd per node, each in a network namespace.

It needs root and Debian's packages slurmctld, slurmd, slurm-client and munge (``missing``). The daemons end with
``slurm_cluster``. They communicate over a management network, a bridge in the namespace of slurmctld. So nodes may be
hosts of a lab, whose other interfaces stay as they are. ``installed_hooks`` makes a copy of the hooks of
``deploy/slurm`` with its own settings, as a site installs them.
"""

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mininet_topos.joining.launch import ROOT
from mininet_topos.lab.record import LabError, run, wait_for

CONTROLLER = "ctl"
PROGRAMS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
COMMAND_S = 30.0
END_S = 10.0
_NUMBERS = itertools.count()
"""Numbers that make the names of namespaces unique: a test may have several clusters."""

CONF = """
ClusterName=lab
SlurmctldHost={controller}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,batch_sched_delay=0,sched_interval=1
PrologFlags=Alloc
SlurmctldTimeout=10
MessageTimeout=2
TCPTimeout=1
SlurmdTimeout={node_timeout_s}
MinJobAge=2
KillWait=1
"""


def missing() -> str | None:
    """Return which packages are not installed, in words; None when all are."""
    absent = sorted({package for program, package in PROGRAMS.items() if not shutil.which(program, path=PATH)})
    return f"there is no {', '.join(absent)}; run scripts/bootstrap.sh --libraries" if absent else None


@dataclass
class Slurm:
    """Slurm cluster. ``nodes``: namespace of each node. ``more``: additional lines of slurm.conf, such as hooks."""

    folder: Path
    nodes: Mapping[str, str]
    more: Sequence[str] = ()
    node_timeout_s: int = 3
    topology: str = ""
    controller_namespace: str = field(default_factory=lambda: f"sbs{next(_NUMBERS)}c{os.getpid() % 100_000}")
    _daemons: dict[str, subprocess.Popen[Any]] = field(default_factory=dict)
    _others: dict[str, set[int]] = field(default_factory=dict)  # processes that each namespace had before

    def run(self, *argv: str, check: bool = True, env: Mapping[str, str] = MappingProxyType({})) -> str:
        """Run a command of Slurm on the machine of slurmctld, and return its output. Raises ``LabError``."""
        with tempfile.TemporaryFile("w+") as said:  # processes left behind would keep a pipe open
            done = subprocess.run(
                self._inside(self.controller_namespace, CONTROLLER, argv),
                env={**self._environment, **env},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=COMMAND_S,
                cwd=self.folder,
                start_new_session=True,
            )
            said.seek(0)
            text = said.read()
        if check and done.returncode:
            raise LabError(f"{' '.join(argv)}: {text}")
        return text

    def submit(self, *words: str, env: Mapping[str, str] = MappingProxyType({})) -> int:
        """Submit a job, and return its number. ``words``: options of sbatch. ``env``: environment of the job."""
        return int(self.run("sbatch", "--parsable", *words, env=env).split(";")[0])

    def jobs(self) -> dict[str, str]:
        """Return the state of each job that Slurm knows, by job number, including jobs that ended seconds ago."""
        rows = self.run("squeue", "--all", "-h", "-t", "all", "-O", "JobID:20,State:20").split("\n")
        return dict(row.split() for row in rows if row.strip())

    def wait_for_state(self, job: int, *states: str) -> None:
        """Return when the job is in one of the states, such as ``COMPLETED``; a forgotten job has the state ``""``."""
        wait_for(lambda: self.jobs().get(str(job), "") in states, f"job {job} to be {states}", poll_s=0.05)

    def wait_for_saved(self, job: int) -> None:
        """Wait until slurmctld has saved the job, so that it knows the job after a kill; saving takes seconds."""
        saved = self.folder / "state" / "job_state"
        before = saved.stat().st_mtime_ns if saved.exists() else 0
        self.run("scontrol", "update", f"JobId={job}", "Comment=saved")
        wait_for(
            lambda: saved.exists() and saved.stat().st_mtime_ns > before, "slurmctld to save its jobs", poll_s=0.05
        )

    def kill(self, daemon: str) -> None:
        """Kill ``slurmctld``, or a node with all its programs, as when a machine fails."""
        process = self._daemons.pop(daemon)
        process.kill()
        process.wait()
        if daemon in self.nodes:
            self._kill_programs(self.nodes[daemon])

    def start_slurmctld(self, *words: str) -> None:
        """Start slurmctld, and return when it answers."""
        self._start("slurmctld", self.controller_namespace, CONTROLLER, "slurmctld", "-D", "-i", *words)
        wait_for(lambda: "UP" in self.run("scontrol", "ping", check=False), "slurmctld", poll_s=0.05)

    def start_node(self, node: str) -> None:
        self._start(node, self.nodes[node], node, "slurmd", "-D", "-N", node)

    def wait_for_nodes(self) -> None:
        """Wait until all nodes are available for jobs."""
        count = str(len(self.nodes))
        wait_for(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == count, "idle nodes", poll_s=0.05)

    # ---- internal

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf"), "HOME": "/root", "LANG": "C.UTF-8"}

    def _inside(self, namespace: str, host: str, argv: Sequence[str]) -> list[str]:
        named = ["unshare", "--uts", "bash", "-c", f'hostname {host}; exec "$@"', "-"]
        return ["ip", "netns", "exec", namespace, *named, *argv]

    def _start(self, name: str, namespace: str, host: str, *argv: str) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                self._inside(namespace, host, argv),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def _write_files(self, address_of: Callable[[int], str]) -> None:
        for name in ("state", "spool", "log", *(f"spool/{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        conf = CONF.format(
            controller=CONTROLLER, address=address_of(254), folder=self.folder, node_timeout_s=self.node_timeout_s
        )
        nodes = [
            f"NodeName={node} NodeAddr={address_of(number)} NodeHostname={node} Port=6818 CPUs=2 RealMemory=512"
            for number, node in enumerate(self.nodes, start=1)
        ]
        partition = "PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:4"
        plugin = ["TopologyPlugin=topology/tree"] if self.topology else []
        (self.folder / "slurm.conf").write_text("\n".join([conf, *self.more, *plugin, *nodes, partition, ""]))
        # `ip netns exec` mounts /sys anew; without this setting slurmd looks for a cgroup hierarchy that is missing,
        # and ends.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        if self.topology:
            (self.folder / "topology.conf").write_text(self.topology)
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))

    def _start_munged(self) -> None:
        files = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        words = [f"--{option}={self.folder}/munge.{ending}" for option, ending in files.items()]
        self._start("munged", self.controller_namespace, CONTROLLER, "munged", "--foreground", "--force", *words)
        wait_for((self.folder / "munge.sock").exists, "munged")

    def _stop(self) -> None:
        for process in self._daemons.values():
            process.terminate()
        for process in self._daemons.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
            process.wait()
        for namespace in (*self.nodes.values(), self.controller_namespace):
            self._kill_programs(namespace)

    def _kill_programs(self, namespace: str) -> None:
        """Kill the programs that Slurm has started in the namespace, including those that it starts meanwhile."""
        while found := _pids_in(namespace) - self._others.get(namespace, set()):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def _pids_in(namespace: str) -> set[int]:
    return set(map(int, run("ip", "netns", "pids", namespace).split()))


@contextmanager
def _management_network(slurm: Slurm, subnet: str) -> Iterator[None]:
    """Create the namespace of slurmctld, with a bridge that has a port per node."""
    name = slurm.controller_namespace
    run("ip", "netns", "add", name)
    try:
        bridge = [
            "link add mgmt type bridge",
            f"addr add {subnet}.254/24 dev mgmt",
            "link set mgmt up",
        ]
        run("ip", "-n", name, "-batch", "-", feed="\n".join(["link set lo up", *bridge]))
        for number, namespace in enumerate(slurm.nodes.values(), start=1):
            end = f"port{number}"
            run("ip", "-n", name, "link", "add", end, "type", "veth", "peer", "name", "mgmt0", "netns", namespace)
            run("ip", "-n", name, "-batch", "-", feed=f"link set {end} master mgmt up")
            own = [f"addr add {subnet}.{number}/24 dev mgmt0", "link set mgmt0 up", "link set lo up"]
            run("ip", "-n", namespace, "-batch", "-", feed="\n".join(own))
        yield
    finally:
        run("ip", "netns", "delete", name)


@contextmanager
def slurm_cluster(slurm: Slurm, subnet: str = "10.66.0") -> Iterator[Slurm]:
    """Start the cluster, and yield it when all nodes are idle.

    ``subnet``: first three numbers of the management network."""
    slurm.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(_management_network(slurm, subnet))
        stack.callback(slurm._stop)
        slurm._others = {namespace: _pids_in(namespace) for namespace in slurm.nodes.values()}
        slurm._write_files(lambda number: f"{subnet}.{number}")
        slurm._start_munged()
        slurm.start_slurmctld()
        for node in slurm.nodes:
            slurm.start_node(node)
        try:
            slurm.wait_for_nodes()
        except LabError as error:
            raise LabError(f"{error}\n{_last_lines(slurm.folder)}") from None
        yield slurm


def _last_lines(folder: Path) -> str:
    logs = sorted((folder / "log").iterdir())
    return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in logs)


@contextmanager
def plain_namespaces(count: int) -> Iterator[dict[str, str]]:
    """Create namespaces for nodes without another network: ``n1`` to ``nCOUNT``."""
    prefix = f"sbs{next(_NUMBERS)}n{os.getpid() % 100_000}"
    names = {f"n{number}": f"{prefix}-{number}" for number in range(1, count + 1)}
    try:
        for name in names.values():
            run("ip", "netns", "add", name)
        yield names
    finally:
        for name in names.values():
            with suppress(LabError):
                run("ip", "netns", "delete", name)


SOURCE = ROOT / "deploy" / "slurm"


def installed_hooks(folder: Path, address: str = "") -> list[str]:
    """Install the hooks in ``folder/hooks``, for jobs in ``folder/jobs``, and return their lines of slurm.conf.

    ``address``: address of the controller."""
    hooks = folder / "hooks"
    shutil.copytree(SOURCE, hooks)
    set_up(hooks, folder, address)
    names = {"PrologSlurmctld": "prolog-slurmctld", "EpilogSlurmctld": "epilog-slurmctld", "TaskProlog": "task-prolog"}
    return [f"{option}={hooks}/{name}.sh" for option, name in names.items()]


def set_up(hooks: Path, folder: Path, address: str) -> None:
    """Create ``folder/jobs``, and edit ``settings.sh`` of the hooks as an administrator does."""
    (folder / "jobs").mkdir()
    settings = (hooks / "settings.sh").read_text()
    for before, after in (
        ("jobs=/var/lib/signalbox-jobs/jobs", f"jobs={folder / 'jobs'}"),
        ("#export SLURM_CONF=/etc/slurm/slurm.conf", f"export SLURM_CONF={folder}/slurm.conf"),
        ("#address=192.0.2.10:50051", f"address={address}"),
    ):
        assert before in settings
        settings = settings.replace(before, after)
    (hooks / "settings.sh").write_text(settings)
