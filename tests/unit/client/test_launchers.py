"""Information that launchers give a process about its job."""

import pytest

from signalbox.launchers import job_id_of_environment, rank_of


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
def test_the_job_is_named_by_signalbox_run_or_slurm_or_torchrun(environ: dict[str, str], job_id: str | None) -> None:
    assert job_id_of_environment(environ) == job_id


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({}, None),
        ({"RANK": "first"}, None),
        ({"RANK": "3"}, 3),
        ({"SLURM_PROCID": "2"}, 2),
        ({"PMI_RANK": "0", "SLURM_PROCID": "1"}, 0),
        ({"OMPI_COMM_WORLD_RANK": "0", "SLURM_PROCID": "2"}, 0),
        ({"SLURM_PROCID": "1", "RANK": "0"}, 1),
        ({"SLURM_PROCID": "0", "RANK": "8", "TORCHELASTIC_RUN_ID": "none"}, 8),
    ],
)
def test_the_rank_is_that_of_the_innermost_launcher(environ: dict[str, str], rank: int | None) -> None:
    assert rank_of(environ) == rank
