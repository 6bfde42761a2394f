"""The models of fencing and handover (tests/model): Spin, a model checker, finds only faults that were put in."""

import shutil
import subprocess
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[1] / "model"
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
"""Configurations of the model of handover without a fault, by name."""

ONE_WRITER = "order>=confirmed"
NOTHING_REWRITTEN = "value!=rule"
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
"""Faults in the program or in its use, each with the assertion that it breaks."""


HELD = ".used==(holder==m)"

ASSIGNMENT_HOLDS = {
    "three assignments": "CUTS=1",
    "a switch restarts": "ASSIGNMENTS=3 RESTARTS=1",
    "connections end": "ASSIGNMENTS=2 DROPS=2 RESTARTS=1",
    "three members": "MEMBERS=3 HOLDERS=2 ASSIGNMENTS=2",
    "a link to the control loop and a connection break": "ASSIGNMENTS=2 BREAKS=1 DROPS=1",
    "a link to the control loop breaks and a switch restarts": "ASSIGNMENTS=2 BREAKS=1 RESTARTS=1",
    "restored, members were stopped": "RESTORES=1 STOPPED_FIRST ASSIGNMENTS=3",
    "restored from before all assignments while members run": "RESTORES=1 ASSIGNMENTS=2 RESTARTS=1",
    "restored while members run that read etcd late, three assignments": "RESTORES=1 WRITES=1 ASSIGNMENTS=3",
    "restored while members run that read etcd late, a switch restarts": "RESTORES=1 WRITES=1 ASSIGNMENTS=2 RESTARTS=1",
}
"""Configurations of the model of assignments without a fault, by name."""

ASSIGNMENT_BROKEN = {
    "the assignment is not read again": ("NOT_READ_AGAIN RESTARTS=1 ASSIGNMENTS=2", ONE_WRITER),
    "one generation for all assignments": ("ONE_GENERATION ASSIGNMENTS=2 MAY_BE_REFUSED", ONE_WRITER),
    "writes before the answer": ("WRITES_BEFORE_THE_ANSWER ASSIGNMENTS=2", NOTHING_REWRITTEN),
    "writes while it claims anew": ("USED_DURING_THE_CLAIM", NOTHING_REWRITTEN),
    "local repair in any role": ("REPAIRS_IN_ANY_ROLE ASSIGNMENTS=2 BREAKS=1 DROPS=1 MAY_BE_REFUSED", ONE_WRITER),
    "restored, base not raised": ("RESTORES=1 STOPPED_FIRST BASE_NOT_RAISED", HELD),
    "restored while members run that read etcd late, and compare no revision of their key": (
        "RESTORES=1 WRITES=1 ASSIGNMENTS=2 RESTARTS=1 KEY_NOT_COMPARED MAY_BE_REFUSED",
        ONE_WRITER,
    ),
    "restored while members run, base not raised": (
        "RESTORES=1 ASSIGNMENTS=2 WRITES=1 BASE_NOT_RAISED MAY_BE_REFUSED",
        ONE_WRITER,
    ),
    "restored to an earlier assignment, which another member has claimed late": (
        "RESTORES=1 ASSIGNMENTS=2 WRITES=1 LATE_BACKUP MAY_BE_REFUSED",
        ONE_WRITER,
    ),
    "restored to an earlier assignment while members run": (
        "RESTORES=1 ASSIGNMENTS=2 LATE_BACKUP MAY_BE_REFUSED RESTARTS=1",
        ONE_WRITER,
    ),
}
"""Faults in the assignment or in its use, each with the assertion that it breaks."""


def search(folder: Path, definitions: str, optimized: str = "-O0", model: str = "handover") -> str:
    """Return the report of spin's verifier. It visits all states, unless one breaks an assertion."""
    shutil.copy(MODELS / f"{model}.pml", folder)
    macros = [f"-D{definition}" for definition in definitions.split()]
    subprocess.run(["spin", *macros, "-a", f"{model}.pml"], cwd=folder, check=True, capture_output=True)
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


def test_a_small_model_of_assignments_holds_and_they_must_be_read_again(tmp_path: Path) -> None:
    refuse_faults(search(tmp_path, "ASSIGNMENTS=2", model="assignment"))
    refuse_others(search(tmp_path, "NOT_READ_AGAIN RESTARTS=1 ASSIGNMENTS=2", model="assignment"), ONE_WRITER)


@pytest.mark.long
@pytest.mark.parametrize("definitions", ASSIGNMENT_HOLDS.values(), ids=ASSIGNMENT_HOLDS)
def test_no_order_of_assignments_and_faults_breaks_an_assertion(definitions: str, tmp_path: Path) -> None:
    refuse_faults(search(tmp_path, definitions, "-O2", "assignment"))


@pytest.mark.long
@pytest.mark.parametrize(("definitions", "broken"), ASSIGNMENT_BROKEN.values(), ids=ASSIGNMENT_BROKEN)
def test_each_fault_of_assignments_is_found(definitions: str, broken: str, tmp_path: Path) -> None:
    refuse_others(search(tmp_path, definitions, model="assignment"), broken)
