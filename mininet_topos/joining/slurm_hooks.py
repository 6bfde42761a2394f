"""Hooks of ``deploy/slurm`` as a site installs them: a copy with its own settings."""

from __future__ import annotations

import shutil
from pathlib import Path

from mininet_topos.joining.launch import ROOT

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
