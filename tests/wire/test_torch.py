"""``signalbox.torch.join`` in real ranks of PyTorch over Gloo, against the real API server."""

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from controller.jobs.registry import JobRegistry
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.torch.running import ranks
from tests.support.wire.control_stand_in import Running, running_api

PROGRAM = "tests.support.torch.ranks"
SLOW_IMPORTS = "torch._dynamo,torch.distributed.tensor.parallel,tests.support.torch.page"
"""Modules that the two ranks' programs import; the first module is imported with the first optimizer."""
PARAMETERS = 4 * (20 * 20 + 20)
COMPUTED_S = 0.3
"""Copy of the constant in tests/support/torch/ranks.py, which cannot be imported here."""


def sends(spec: JobSpec) -> list[tuple[str, tuple[str, ...], int, int]]:
    return [(c.algorithm, c.groups, c.bytes_per_iteration, c.phase) for c in spec.collectives]


def is_final(spec: JobSpec) -> bool:
    return not spec.provisional


def of_all(what: str, size: int, phase: int = 0) -> tuple[str, tuple[str, ...], int, int]:
    return (what, ("default",), size, phase)


ANNOUNCED = {
    "ddp": [of_all("all_reduce", 4 * PARAMETERS)],
    "hooked": [of_all("all_reduce", 2 * PARAMETERS)],
    # FSDP1 has one unit here. Gloo carries out a reduce-scatter as an all-reduce, and FSDP2 overlaps both backwards.
    "fsdp1": [of_all("all_gather", 4 * PARAMETERS), of_all("all_reduce", 4 * PARAMETERS, 1)],
    "fsdp2": [of_all("all_gather", 2 * 4 * PARAMETERS), of_all("all_reduce", 4 * PARAMETERS)],
    "plain": [of_all("all_reduce", 4 * 1500)],
    # L-BFGS computes gradients once before its three steps, and after all but the last.
    "closures": [of_all("all_reduce", 3 * 4 * PARAMETERS)],
    # There are two pairs of layers: outputs of two samples forwards, and backwards the gradient of the second pair's
    # input.
    "tensor": [("all_reduce", ("tensor",), 4 * 2 * 20 * 3, 0)],
}


NOT_ANNOUNCED = {
    "nameless": "job '' is not announced (the training continues): job: the id of the job is missing",
    "broken": "job 'broken' is not announced (the training continues): rank 1: model_or_groups: must be",
    "misplaced": "job 'misplaced' is not announced (the training continues): rank 0: endpoint: must be an IPv4",
    "alone": "job 'alone' is not announced (the training continues): all ranks must call signalbox.torch.join; 1 of 2",
}
"""Line in the output of rank 0, by kind of program."""

KINDS = (*ANNOUNCED, "offering", "nowhere", *NOT_ANNOUNCED)


class Seen(NamedTuple):
    """Jobs and outputs of two ranks, as the controller and the files have them.

    ``begun``: specs at their registration. ``left``: jobs at their end. ``said``: output of each rank. ``reported``:
    iterations by job."""

    begun: list[JobSpec]
    left: list[Any]
    said: list[str]
    reported: defaultdict[str, list[IterationTime]]


PROGRAMS = ("vision", "language", "ring", "mesh", "named")
"""Jobs of the programs of the guide, in their order."""


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Run the programs of the guide and every kind of program in the same two ranks.

    All programs share the ranks, so that remains of one job would show in the next announcement. The ranks continue to
    train when one of them joins with wrong arguments, and when there is no controller."""
    folder, seen = tmp_path_factory.mktemp("ranks"), Seen([], [], [], defaultdict(list))
    register, deregister, report = JobRegistry.register, JobRegistry.deregister, JobRegistry.report

    def registered(registry: JobRegistry, *how: Any) -> Any:
        job = register(registry, *how)
        seen.begun.append(job.spec)
        return job

    def deregistered(registry: JobRegistry, job_id: JobId, *how: Any) -> Any:
        seen.left.append(registry.jobs[job_id])
        return deregister(registry, job_id, *how)

    def reports(registry: JobRegistry, job_id: JobId, *how: Any) -> Any:
        new = report(registry, job_id, *how)
        seen.reported[job_id] += new
        return new

    with pytest.MonkeyPatch.context() as patched, running_api() as api:
        patched.setattr(JobRegistry, "register", registered)
        patched.setattr(JobRegistry, "report", reports)
        patched.setattr(JobRegistry, "deregister", deregistered)
        words = [f"{SLOW_IMPORTS},{PROGRAM}", str(folder), "page", *KINDS]
        with ranks(folder, 2, words, api.addresses[0]) as run:
            for kind, announced in ANNOUNCED.items():
                run.wait_until(lambda k=kind, a=announced: is_final(known(api, k)) and sends(known(api, k)) == a)  # type: ignore[misc]
                (folder / kind).touch()
            run.wait_until(lambda: reported(api, "offering") == 5)
            (folder / "offering").touch()
            run.wait_until(lambda: "job 'nowhere': no contact with the controller" in run.said(0))
            for kind in ("nowhere", *NOT_ANNOUNCED):
                (folder / kind).touch()
            run.wait()
            seen.said.extend(run.said(rank) for rank in range(2))
    return seen


def test_the_programs_of_the_guide_announce_what_it_says(two_ranks: Seen) -> None:
    seen = two_ranks.left[: len(PROGRAMS)]
    assert [job.id for job in seen] == [*PROGRAMS]
    vision, _, ring, mesh, named = seen
    assert [c.bytes_per_iteration for c in vision.spec.collectives] == [4 * (10 * 10 + 10)]
    assert (vision.vitals.reported.iterations, ring.vitals.reported.iterations) == (5, 6)
    assert [group.name for group in (*mesh.spec.groups, *named.spec.groups)] == ["data", "data"]


def test_what_two_ranks_send_is_announced_however_they_train(two_ranks: Seen) -> None:
    """The first announcement has the gradients of DistributedDataParallel, or parallelizations of the program.

    Other traffic is announced after some iterations."""
    left = two_ranks.left[len(PROGRAMS) :]
    assert [job.id for job in left] == [*ANNOUNCED, "offering"]
    at_once = dict.fromkeys(("ddp", "closures"), ANNOUNCED["ddp"])
    *recorded, offering = two_ranks.begun[len(PROGRAMS) :]
    assert [sends(spec) for spec in recorded] == [at_once.get(kind, []) for kind in ANNOUNCED]
    assert [way.name for way in offering.parallelizations] == ["by hand"]
    assert (offering.groups, offering.collectives) == ((), ())
    assert {spec.keeps_slots for spec in two_ranks.begun} == {True}
    times = [each for kind in ("hooked", "fsdp1", "fsdp2") for each in two_ranks.reported[kind]]
    assert all(0 < (each.until_communication_s or 0) < each.duration_s for each in times), (
        "as their calls in Python show"
    )


def reported(api: Running, job_id: str) -> int:
    job = api.control.registry.jobs.get(JobId(job_id))
    return job.vitals.reported.iterations if job else 0


def known(api: Running, job_id: str) -> JobSpec:
    job = api.control.registry.jobs.get(JobId(job_id))
    return job.spec if job else JobSpec.parse({"job_id": job_id, "endpoints": ["10.0.1.1"] * 2})


def test_roots_overlaps_and_groups_of_a_mesh_are_announced_as_they_are(tmp_path: Path) -> None:
    """The broadcast is a tree from the last rank. Ranks 0, 1 and 2, 3 are pipelines of two stages.

    Each rank of Gloo's reduction sends 3/4 of the bytes backwards around a ring, then all but the root send 1/4 to
    the root. There is no optimizer, so nothing loads PyTorch's compiler, which takes seconds of processor time on every
    rank."""
    kinds = ("roots", "overlapping", "pipeline")
    found: dict[str, JobSpec] = {}
    with running_api() as api, ranks(tmp_path, 4, [PROGRAM, str(tmp_path), *kinds], api.addresses[0]) as run:
        for kind in kinds:
            run.wait_until(lambda k=kind: bool(known(api, k).collectives))  # type: ignore[misc]
            found[kind] = known(api, kind)
            (tmp_path / kind).touch()
        run.wait()
    roots, overlapping, pipeline = found.values()
    assert sends(roots) == [of_all("broadcast", 4000)]
    assert [group.ranks for group in roots.groups] == [(3, 0, 1, 2)]
    sent = [(t.src, t.dst, t.bytes_per_iteration) for t in roots.transfers]
    to_root, backwards = [(rank, 3, 500) for rank in range(3)], [(rank, (rank - 1) % 4, 1500) for rank in range(4)]
    assert sorted(sent) == sorted(to_root + backwards)
    used = sorted((c.groups, c.phase) for c in overlapping.collectives)
    assert used == [(("default",), 0), (("default",), 1), (("two",), 0)]
    assert {group.name: group.ranks for group in pipeline.groups} == {"data-0": (0, 2), "data-1": (1, 3)}
    assert sends(pipeline) == [("all_reduce", ("data-0", "data-1"), 8000, 1)]
    pairs = [(t.src, t.dst, t.bytes_per_iteration, t.phase) for t in pipeline.transfers]
    assert pairs == [(0, 1, 4000, 0), (1, 0, 4000, 0), (2, 3, 4000, 0), (3, 2, 4000, 0)]
    assert all("compiler is not loaded" in run.said(rank) for rank in range(4))
