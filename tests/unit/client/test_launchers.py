"""What launchers say of the job that a process belongs to."""

from __future__ import annotations

import pytest

from signalbox.launchers import job_id_of_environment


@pytest.mark.parametrize(
    ("environ", "job_id"),
    [
        ({}, None),
        ({"SIGNALBOX_JOB": ""}, None),
        ({"TORCHELASTIC_RUN_ID": "none"}, None),
        ({"TORCHELASTIC_RUN_ID": "run-3"}, "run-3"),
        ({"TORCHELASTIC_RUN_ID": "run-3", "SLURM_JOB_ID": "17"}, "slurm-17"),
        ({"TORCHELASTIC_RUN_ID": "run-3", "SLURM_JOB_ID": "17", "SIGNALBOX_JOB": "ring"}, "ring"),
    ],
)
def test_the_job_is_named_by_signalbox_run_then_by_slurm_then_by_torchrun(
    environ: dict[str, str], job_id: str | None
) -> None:
    assert job_id_of_environment(environ) == job_id
