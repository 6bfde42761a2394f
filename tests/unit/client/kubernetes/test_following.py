"""Registered jobs of a Kubernetes cluster, while its objects are added, change and are removed."""

from copy import deepcopy
from itertools import permutations
from typing import Any

import pytest

from signalbox.jobs.spec import JobSpec
from signalbox.kubernetes.announcing import Body
from signalbox.kubernetes.following import Following
from signalbox.membership import Ended
from tests.support.kubernetes_objects import annotate, recorded, replacement

Object = dict[str, Any]
ID = "default_job_ring"


class Kept:
    """Record of the calls that keep or release jobs, and of the messages about objects of the cluster."""

    def __init__(self) -> None:
        self.specs: dict[str, JobSpec] = {}
        self.calls: list[str] = []
        self.told: list[str] = []
        self.following = Following(self, self.tell)

    def keep(self, spec: JobSpec) -> None:
        self.calls.append("keep")
        self.specs[spec.job_id] = spec

    def release(self, job_id: str) -> None:
        self.calls.append("release")
        del self.specs[job_id]

    def tell(self, body: Body, warning: bool, reason: str, message: str) -> None:
        self.told.append(f"{body['metadata']['name']} {'!' if warning else ''}{reason}: {message}")

    def see(self, *objects: Object, gone: bool = False) -> None:
        for body in deepcopy(objects):
            if body["kind"] == "Pod":
                self.following.pod(body, gone)
            else:
                self.following.job(body["kind"], body, gone)

    @property
    def endpoints(self) -> tuple[str, ...] | None:
        return self.specs[ID].endpoints if ID in self.specs else None


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_a_job_is_announced_once_whatever_comes_first(kept: Kept) -> None:
    job, pods = recorded("Job")
    for order in permutations([job, *pods]):
        kept = Kept()
        kept.see(*order, *order)
        assert kept.calls == ["keep"]
        assert kept.endpoints == ("10.244.31.9", "10.244.32.9")
    assert kept.told == [f"ring Announced: job '{ID}': 2 ranks at 2 addresses, observed"]
    annotate(job, announce=None)
    kept = Kept()
    kept.see(job, *pods)
    assert (kept.calls, kept.told) == ([], []), "a job that is not annotated is left alone"


def test_a_pod_that_is_replaced_changes_the_job_when_the_new_one_has_its_address(kept: Kept) -> None:
    job, pods = recorded("Job")
    kept.see(job, *pods)
    new = replacement(pods[0], "10.244.40.1")
    early = deepcopy(new)
    del early["status"]["podIP"], early["status"]["podIPs"]
    kept.see(pods[0], gone=True)
    kept.see(early)
    assert kept.calls == ["keep"]
    kept.see(new)
    assert kept.endpoints == ("10.244.40.1", "10.244.32.9")
    assert kept.told[-1].startswith("ring Updated: ")


def test_a_job_that_stops_is_released_and_announced_again_when_it_goes_on(kept: Kept) -> None:
    job, pods = recorded("Job")
    stopped = deepcopy(job)
    stopped["spec"]["suspend"] = True
    kept.see(job, *pods, stopped, stopped)
    assert kept.calls == ["keep", "release"]
    assert kept.told[-1].startswith(f"ring Released: job '{ID}' is released: it ")
    kept.see(job)
    assert kept.calls == ["keep", "release", "keep"]
    annotate(job, announce="perhaps")
    kept.see(job)
    assert kept.calls == ["keep", "release", "keep"]
    job["status"]["conditions"] = [{"type": "Failed", "status": "True"}]
    kept.see(job)
    assert kept.calls == ["keep", "release"] * 2, "a job that ends is released whatever its annotations say"


def test_a_job_that_is_deleted_or_loses_its_annotations_or_all_pods_is_released(kept: Kept) -> None:
    """The addresses of its pods may soon belong to another job."""
    job, pods = recorded("Job")
    kept.see(job, *pods)
    kept.see(job, gone=True)
    assert kept.calls == ["keep", "release"]
    kept.see(job)
    kept.see(pods[1], gone=True)
    assert kept.calls == ["keep", "release", "keep"]
    kept.see(pods[0], gone=True)
    assert kept.calls == ["keep", "release"] * 2
    kept.see(*pods)
    annotate(job, announce=None)
    kept.see(job)
    assert kept.calls == ["keep", "release"] * 3


def test_a_new_job_of_the_same_name_is_not_mixed_up_with_the_one_before(kept: Kept) -> None:
    job, pods = recorded("Job")
    kept.see(job, *pods)
    new = deepcopy(job)
    new["metadata"] |= {"uid": "another", "creationTimestamp": "2026-11-24T03:59:00Z"}
    kept.see(new)
    assert kept.calls == ["keep", "release"]
    kept.see(*(replacement(pod, f"10.244.40.{n}") for n, pod in enumerate(pods, start=1)))
    kept.see(job, gone=True)
    assert kept.endpoints == ("10.244.40.1", "10.244.40.2")


def test_what_is_wrong_is_told_once_and_what_was_announced_stays(kept: Kept) -> None:
    job, pods = recorded("Job")
    kept.see(job, *pods)
    wrong = deepcopy(job)
    annotate(wrong, spec="library: mpi")
    kept.see(wrong, wrong, pods[0])
    assert kept.calls == ["keep"]
    (told,) = kept.told[1:]
    assert told.startswith("ring !NotAnnounced: signalbox/spec:1:1: library: ")
    assert told.endswith("; the earlier announcement stays")
    kept.see(job, job, wrong, job)
    assert kept.calls == ["keep"]
    found = [each.partition(":")[0] for each in kept.told[2:]]
    assert found == ["ring Announced", "ring !NotAnnounced", "ring Announced"]
    annotate(job, spec="library: nccl")
    kept.see(job)
    assert kept.calls == ["keep", "keep"]
    assert kept.specs[ID].library == "nccl"


@pytest.mark.parametrize(
    ("why", "told"),
    [
        (Ended.TAKEN_OVER, f"ring Ended: job '{ID}' is left to another registration"),
        (Ended.DEREGISTERED, f"ring !Ended: an operator has ended job '{ID}'"),
        (Ended.REFUSED, f"ring !Ended: the Signalbox controller has refused job '{ID}'"),
    ],
)
def test_how_a_registration_ended_is_told(kept: Kept, why: Ended, told: str) -> None:
    job, pods = recorded("Job")
    kept.see(job, *pods)
    kept.following.ended("another", why)
    kept.following.ended(ID, why)
    assert len(kept.told) == 2
    assert kept.told[1].startswith(told)


def test_which_objects_are_kept_is_known(kept: Kept) -> None:
    """The caller looks for these objects when it may have missed their deletion."""
    job, pods = recorded("PyTorchJob")
    waiting, _ = recorded("MPIJob")
    kept.see(job, *pods, waiting)
    assert kept.following.kept() == [("PyTorchJob", job)]
    kept.see(job, gone=True)
    assert kept.following.kept() == []
