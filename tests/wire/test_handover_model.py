"""The model of fencing and handover (tests/model): spin finds no fault in it, and finds each fault put into it."""

import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[1] / "model" / "handover.pml"
MOST_MEGABYTES = 6000
DEEPEST = 100_000
"""Largest number of steps in one run of the model; the search fails above it."""

HOLDS = {
    "handovers": "LAPSES=2 DROPS=2 RESTARTS=2 CUTS=1",
    "processes end": "KILLS=1 STARTS=1 DROPS=1 RESTARTS=1 CUTS=1",
    "two switches": "SWITCHES=2 RESTARTS=1",
    "two switches and a cable": "SWITCHES=2 CUTS=1",
    "three members": "MEMBERS=3 LAPSES=2 RESTARTS=1",
    "changes of jobs": "CHANGES=2 WRITES=4 TIMEOUTS=2 COPIES=1 LAPSES=2 CONNECTS=0",
    "changes of jobs and rules": "CHANGES=1 WRITES=2 TIMEOUTS=1 DROPS=1",
    "the lease is not checked, but no switch restarts": "LEASE_NOT_CHECKED LAPSES=2 DROPS=2 KILLS=1 STARTS=1",
    "restored, epoch raised": "RESTORES=1 STOPPED_FIRST RAISED KILLS=2 STARTS=2 LAPSES=0 DROPS=1",
    "restored, epoch from the clock": "RESTORES=1 STOPPED_FIRST EPOCH_FROM_CLOCK KILLS=2 STARTS=2 LAPSES=0 RESTARTS=1",
    "restored while members run": "RESTORES=1 EARLY_BACKUP EPOCH_FROM_CLOCK DROPS=2 STARTS=1",
}
"""Configurations without a fault."""

ONE_WRITER = ".order>=confirmed[s]"
NOTHING_REWRITTEN = "value!=rule[s]"
NO_JOB_LOST = "(etcd.jobs&acknowledged)==acknowledged"
SWITCH_HELD = ".claim=="

BROKEN = {
    "the generation of the switch plus one": ("GENERATION_OF_THE_SWITCH DROPS=1 MAY_BE_REFUSED", ONE_WRITER),
    "the lease is not checked": ("LEASE_NOT_CHECKED RESTARTS=1", ONE_WRITER),
    "writes before the answer": ("WRITES_BEFORE_THE_ANSWER DROPS=1", NOTHING_REWRITTEN),
    "reads before the claim": ("READS_BEFORE_THE_CLAIM CUTS=1", NOTHING_REWRITTEN),
    "etcd does not compare the claim": ("CLAIM_NOT_COMPARED CONNECTS=0 CHANGES=2 WRITES=4", NO_JOB_LOST),
    "etcd does not compare the commit": (
        "COMMIT_NOT_COMPARED CONNECTS=0 CHANGES=2 WRITES=4 TIMEOUTS=1 COPIES=1",
        NO_JOB_LOST,
    ),
    "restored, epoch not raised": ("RESTORES=1 STOPPED_FIRST KILLS=2 STARTS=2", SWITCH_HELD),
    "restored while members run, epoch not raised": ("RESTORES=1 EARLY_BACKUP DROPS=1 MAY_BE_REFUSED", ONE_WRITER),
    "restored while members run, and a switch restarts": (
        "RESTORES=1 EARLY_BACKUP EPOCH_FROM_CLOCK RESTARTS=1 LAPSES=0 MAY_BE_REFUSED",
        ONE_WRITER,
    ),
    "restored to an earlier holder while members run": (
        "RESTORES=1 EPOCH_FROM_CLOCK STARTS=1 MAY_BE_REFUSED",
        ONE_WRITER,
    ),
}
"""Faults in the program or in its use, each with the assertion that they break."""


def search(folder: Path, definitions: str, optimized: str = "-O0") -> str:
    """Return the report of spin's verifier. It visits all states, unless one breaks an assertion."""
    shutil.copy(MODEL, folder)
    macros = [f"-D{definition}" for definition in definitions.split()]
    subprocess.run(["spin", *macros, "-a", MODEL.name], cwd=folder, check=True, capture_output=True)
    options = [optimized, "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", f"-DMEMLIM={MOST_MEGABYTES}"]
    subprocess.run(["gcc", *options, "-o", "pan", "pan.c"], cwd=folder, check=True)
    report = subprocess.run(["./pan", f"-m{DEEPEST}"], cwd=folder, check=True, capture_output=True, text=True)
    return report.stdout


def refuse_faults(report: str) -> None:
    assert "errors: 0" in report, report
    assert "Search not completed" not in report
    assert "max search depth too small" not in report


def refuse_others(report: str, broken: str) -> None:
    (line,) = (line for line in report.splitlines() if "assertion violated" in line)
    assert broken in line


def test_a_small_model_holds_and_the_earlier_claims_are_refused(tmp_path: Path) -> None:
    refuse_faults(search(tmp_path, "RESTARTS=1 DROPS=1"))
    refuse_others(search(tmp_path, "GENERATION_OF_THE_SWITCH DROPS=1 MAY_BE_REFUSED"), ONE_WRITER)
    refuse_others(search(tmp_path, "LEASE_NOT_CHECKED RESTARTS=1"), ONE_WRITER)


@pytest.mark.long
@pytest.mark.parametrize("definitions", HOLDS.values(), ids=HOLDS)
def test_no_order_of_steps_and_faults_breaks_an_assertion(definitions: str, tmp_path: Path) -> None:
    refuse_faults(search(tmp_path, definitions, "-O2"))


@pytest.mark.long
@pytest.mark.parametrize(("definitions", "broken"), BROKEN.values(), ids=BROKEN)
def test_each_fault_is_found(definitions: str, broken: str, tmp_path: Path) -> None:
    refuse_others(search(tmp_path, definitions), broken)
