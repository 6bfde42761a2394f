"""Files for Slurm: scripts that bash accepts, a unit file that systemd accepts, and folders that agree."""

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

from mininet_topos.lab.record import wait_for
from tests.support.lab.slurm import installed_hooks

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "slurm"
UNIT = (DEPLOY / "signalbox-jobs.service").read_text()


def test_the_daemon_looks_where_the_hooks_write() -> None:
    (folder,) = re.findall(r"^jobs=/var/lib/(.*)$", (DEPLOY / "settings.sh").read_text(), re.MULTILINE)
    assert f"jobs keep /var/lib/{folder} " in UNIT
    assert f" {folder}\n" in next(line for line in UNIT.splitlines(True) if line.startswith("StateDirectory="))


def test_the_sweep_outlives_the_prolog_whose_process_group_slurmctld_kills(tmp_path: Path) -> None:
    installed_hooks(tmp_path)
    hooks, jobs = tmp_path / "hooks", tmp_path / "jobs"
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho 1\n")
    squeue.chmod(0o755)
    with (hooks / "settings.sh").open("a") as settings:
        settings.write(f"PATH={tmp_path}:$PATH\n")
    job = os.environ | {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1"}
    left = jobs / "slurm-999.yaml"
    for _ in range(20):
        left.touch()
        (jobs / ".swept").unlink(missing_ok=True)
        prolog = subprocess.Popen([hooks / "prolog-slurmctld.sh"], process_group=0, env=job)
        assert prolog.wait() == 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(prolog.pid, signal.SIGKILL)
        wait_for(lambda: not left.exists(), "the sweep")
