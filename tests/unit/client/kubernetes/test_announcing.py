"""Annotated jobs of a Kubernetes cluster: their specs, and which of them are kept registered."""

import json
from copy import deepcopy
from itertools import permutations
from typing import Any

import pytest

from signalbox.errors import InvalidInput
from signalbox.jobs.spec import JobSpec, Library
from signalbox.kubernetes.announcing import (
    KINDS,
    NETWORK_STATUS,
    Body,
    Idle,
    JobKey,
    Outcome,
    Pod,
    Ready,
    Waiting,
    announcement,
    is_annotated,
    job_id,
)
from signalbox.kubernetes.following import Following
from signalbox.membership import Ended
from tests.support.kubernetes_objects import annotate, named, recorded, replacement

Object = dict[str, Any]


def outcome(job: Object, pods: list[Object]) -> Outcome:
    key = JobKey(job["kind"], job["metadata"]["namespace"], job["metadata"]["name"])
    of_job = [found[1] for found in map(Pod.of, pods) if found and found[0] == key]
    return announcement(key, job, of_job)


def spec_of(job: Object, pods: list[Object]) -> JobSpec:
    found = outcome(job, pods)
    assert isinstance(found, Ready), found
    return found.spec


def refused(job: Object, pods: list[Object]) -> str:
    with pytest.raises(InvalidInput) as caught:
        outcome(job, pods)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("PyTorchJob", {"nprocPerNode": "9" * 5000}),
        ("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": None}}}),
        ("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": "many"}}}),
        ("PyTorchJob", {"pytorchReplicaSpecs": ["Worker"]}),
        ("MPIJob", {"slotsPerWorker": "many"}),
        ("JobSet", {"replicatedJobs": [{}]}),
        ("Job", {"completionMode": "Indexed", "completions": 2, "parallelism": None}),
    ],
)
def test_a_job_whose_form_its_definition_does_not_check_is_refused(kind: str, changes: dict[str, object]) -> None:
    job, pods = recorded(kind)
    job["spec"] |= changes
    assert f"the {kind} cannot be read: " in refused(job, pods)


@pytest.mark.parametrize("networks", ["[" * 100_000, json.dumps([{"name": "other" * 10_000}])])
def test_a_pod_whose_networks_are_unusual_gets_a_short_message(networks: str) -> None:
    job, pods = recorded("JobSet")
    annotate(job, network="n" * 10_000)
    for pod in pods:
        pod["metadata"]["annotations"] = {NETWORK_STATUS: networks}
    assert len(refused(job, pods)) < 500


# ---- ranks and addresses


def test_a_jobset_is_in_the_order_of_its_jobs_and_their_indexes_with_a_rail_per_network() -> None:
    spec = spec_of(*recorded("JobSet"))
    assert spec.job_id == "ml_jobset_llama"
    assert spec.endpoints == ("10.0.2.1", "10.0.3.1", "10.0.4.1", "10.0.5.1")
    assert [rail.endpoints for rail in spec.rails] == [("10.1.2.1", "10.1.3.1", "10.1.4.1", "10.1.5.1")]
    assert (spec.library, spec.collectives[0].bytes_per_iteration) == (Library.NCCL, 400_000_000)
    job, pods = recorded("JobSet")
    annotate(job, workers=None, spec=None, network=None)
    all_pods = tuple(f"10.244.{node}.7" for node in range(1, 6))
    assert spec_of(job, pods).endpoints == all_pods, "without names of workers"


@pytest.mark.parametrize(("kind", "endpoints"), [
    ("PyTorchJob", ["10.244.12.5", "10.244.12.5", "10.244.13.5", "10.244.13.5", "10.244.11.5", "10.244.11.5"]),
    ("MPIJob", ["192.168.7.22", "192.168.7.22", "192.168.7.23", "192.168.7.23"]),
    ("Job", ["10.244.31.9", "10.244.32.9"]),
], ids=["the master first, ranks per pod as it says", "workers at their nodes, no launcher", "by index"])  # fmt: skip
def test_a_job_has_the_ranks_of_its_kind_and_without_a_spec_it_is_observed(kind: str, endpoints: list[str]) -> None:
    spec = spec_of(*recorded(kind))
    assert [*spec.endpoints] == endpoints
    assert spec.observed


def test_the_spec_may_say_processes_per_node_where_torchrun_decides_them_and_parallelizations() -> None:
    job, pods = recorded("PyTorchJob")
    job["spec"]["nprocPerNode"] = "auto"
    assert len(spec_of(job, pods).endpoints) == 3
    annotate(job, spec="ranks_per_host: 8")
    assert len(spec_of(job, pods).endpoints) == 24
    job, pods = recorded("JobSet")
    annotate(job, spec="parallelizations: [{name: a, transfers: [{src: 0, dst: 3, bytes_per_iteration: 1 kB}]}]")
    spec = spec_of(job, pods)
    assert (spec.observed, spec.plain.transfers[0].bytes_per_iteration) == (False, 1000)
    annotate(job, spec="parallelizations: [{name: a, transfers: [{src: 0, dst: 4, bytes_per_iteration: 1 kB}]}]")
    assert refused(job, pods).startswith(
        "signalbox/spec:1:51: parallelizations[0].transfers[0].dst: rank 4 has no endpoint"
    )


def test_the_launcher_of_an_mpijob_is_the_first_rank_where_it_is_a_worker_too_and_operators_label_differently() -> None:
    """The operator counts the workers from 1 in their labels where the launcher is a worker."""
    job, pods = recorded("MPIJob")
    job["spec"]["runLauncherAsWorker"] = True
    for name, index in (("launcher", "0"), ("worker-0", "1"), ("worker-1", "2")):
        named(pods, name)["metadata"]["labels"]["training.kubeflow.org/replica-index"] = index
    assert spec_of(job, pods).endpoints[::2] == ("192.168.7.24", "192.168.7.22", "192.168.7.23")
    job, pods = recorded("MPIJob")
    job["apiVersion"] = "kubeflow.org/v1"
    for pod in pods:
        labels = pod["metadata"]["labels"]
        labels["training.kubeflow.org/operator-name"] = "mpijob-controller"
        labels["training.kubeflow.org/replica-type"] = labels.pop("training.kubeflow.org/job-role")
    assert spec_of(job, pods).endpoints[::2] == ("192.168.7.22", "192.168.7.23"), "of the training operator"
    status = named(pods, "worker-1")["status"]
    status |= {"podIP": "192.168.7.22", "podIPs": [{"ip": "192.168.7.22"}]}
    annotate(job, spec="ranks_per_host: 1")
    assert spec_of(job, pods).endpoints == ("192.168.7.22", "192.168.7.22"), "several pods share a node"


def test_of_two_addresses_the_one_of_ipv4_is_taken_and_pods_without_it_are_refused() -> None:
    job, pods = recorded("Job")
    for number, pod in enumerate(pods):
        pod["status"]["podIPs"] = [{"ip": f"fd00::{number}"}, {"ip": f"10.9.0.{number + 1}"}]
    assert spec_of(job, pods).endpoints == ("10.9.0.1", "10.9.0.2")
    pods[0]["status"]["podIPs"] = [{"ip": "fd00::1"}]
    assert refused(job, pods).endswith("has no IPv4 address in the network of the cluster; it has fd00::1")


# ---- when


def test_a_job_is_waited_for_until_all_its_pods_have_addresses() -> None:
    job, pods = recorded("Job")
    assert outcome(job, []) == Idle("it has no pods")
    assert outcome(job, pods[:1]) == Waiting("1 of 2 pods have their addresses")
    for name in ("podIP", "podIPs"):
        del pods[1]["status"][name]
    pods[1]["status"]["phase"] = "Pending"
    assert outcome(job, pods) == Waiting("1 of 2 pods have their addresses")
    job, pods = recorded("JobSet")
    del pods[0]["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"]
    workers = [pod for pod in pods if "workers" in pod["metadata"]["name"]]
    del workers[0]["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"]
    assert outcome(job, workers) == Waiting("3 of 4 pods have their addresses"), "of the secondary network too"


@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        ("JobSet", {"spec": {"suspend": True}}, "it is suspended"),
        ("PyTorchJob", {"spec": {"runPolicy": {"suspend": True}}}, "it is suspended"),
        ("MPIJob", {"metadata": {"deletionTimestamp": "2026-11-24T05:00:00Z"}}, "it is being deleted"),
        ("JobSet", {"status": {"conditions": [{"type": "Completed", "status": "True"}]}}, "it has ended (Completed)"),
        ("MPIJob", {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}, "it has ended (Succeeded)"),
        ("Job", {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, "it has ended (Failed)"),
        ("Job", {"metadata": {"annotations": {"signalbox/announce": "false"}}}, "its annotations do not announce it"),
    ],
)
def test_a_job_that_does_not_run_is_not_announced(kind: str, change: dict[str, Object], why: str) -> None:
    job, pods = recorded(kind)
    job.setdefault("status", {})["conditions"] = [{"type": "Failed", "status": "False"}]
    assert isinstance(outcome(job, pods), Ready)
    for part, fields in change.items():
        job[part] |= fields
    assert outcome(job, pods) == Idle(why)


def test_the_newest_pod_of_a_rank_counts_and_one_that_has_ended_does_not() -> None:
    job, pods = recorded("Job")
    new = replacement(pods[0], "10.244.40.1")
    for order in ([*pods, new], [new, *pods]):
        assert spec_of(job, order).endpoints == ("10.244.40.1", "10.244.32.9")
    ended, deleted = deepcopy(new), deepcopy(new)
    ended["status"]["phase"] = "Failed"
    deleted["metadata"]["deletionTimestamp"] = "2026-11-24T05:00:00Z"
    for gone in (ended, deleted):
        assert spec_of(job, [*pods, gone]).endpoints == ("10.244.31.9", "10.244.32.9")


# ---- errors


def test_annotations_networks_and_jobs_that_give_no_ranks_are_refused() -> None:
    job, pods = recorded("Job")
    annotate(job, announce="yes", netwrok="rail0")
    assert refused(job, pods) == (
        "signalbox/netwrok: there is no such annotation; there are: signalbox/announce, signalbox/spec, "
        "signalbox/network, signalbox/workers; signalbox/announce: must be 'true' or 'false' (given: 'yes')"
    )
    annotate(job, announce=None, netwrok=None, network="rail0")
    assert refused(job, pods) == "signalbox/announce: is missing: 'true' announces the job"
    job, pods = recorded("Job")
    job["spec"]["completionMode"] = "NonIndexed"
    assert refused(job, pods).startswith("spec.completionMode: must be Indexed")
    job["spec"] |= {"completionMode": "Indexed", "completions": 3}
    assert refused(job, pods) == "spec.parallelism: must be 3, so that all pods run at once (given: 2)"
    job["spec"] |= {"completions": 5000, "parallelism": 5000}
    assert refused(job, pods) == "spec: at most 4096 pods can be announced as one job"
    annotate(job, workers="ring")
    assert refused(job, pods) == "signalbox/workers: is for JobSets only; omit it for a Job"
    job, pods = recorded("JobSet")
    annotate(job, workers="workers, trainers")
    message = "signalbox/workers: there is no replicated job 'trainers'; there are: driver, workers"
    assert refused(job, pods) == message
    job, pods = recorded("JobSet")
    annotate(job, network="rail7")
    assert "' is not in network 'rail7'; it is in cbr0, ml/rail0, ml/rail1" in refused(job, pods)
    annotate(job, network="rail0")
    for pod in pods:
        pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"] = '{"name": 1}'
    assert "cannot be read" in refused(job, pods)


@pytest.mark.parametrize(("spec", "message"), [
    ("collectives: [", "signalbox/spec:2:1: not YAML"),
    ("endpoints: [10.0.0.1]", "signalbox/spec:1:1: endpoints: are the addresses of the pods: leave them out"),
    ("job_id: ring", "signalbox/spec:1:1: job_id: is derived from the names"),
    ("- library: nccl", "signalbox/spec: must be one object with fields of a job spec"),
    ("ranks_per_host: 0", "signalbox/spec:1:1: ranks_per_host: must be a number from 1 to 4096"),
    ("groups:\n  - {name: data, ranks: [0, 1, 2]}",
     "signalbox/spec:2:32: groups[0].ranks[2]: rank 2 has no endpoint; ranks go from 0 to 1"),
])  # fmt: skip
def test_a_wrong_spec_is_told_with_its_place_before_there_are_pods(spec: str, message: str) -> None:
    job, pods = recorded("Job")
    annotate(job, spec=spec)
    assert message in refused(job, [])
    assert refused(job, []) == refused(job, pods)


# ---- ids


@pytest.mark.parametrize("kind", [*KINDS])
def test_a_job_is_found_by_the_pods_that_its_operator_makes(kind: str) -> None:
    job, pods = recorded(kind)
    key = JobKey(kind, job["metadata"]["namespace"], job["metadata"]["name"])
    assert is_annotated(job)
    assert {found[0] for found in map(Pod.of, pods) if found} == {key}
    pods[0]["metadata"] |= {"labels": {"app": "web"}, "annotations": {}}
    assert Pod.of(pods[0]) is None
    assert KINDS[kind].group == job["apiVersion"].partition("/")[0]


def test_ids_are_different_and_fit_and_jobs_that_another_job_has_made_have_none() -> None:
    keys = [JobKey("Job", "a-b", "c"), JobKey("Job", "a", "b-c"), JobKey("MPIJob", "a", "b-c")]
    keys += [JobKey("Job", "n" * 63, "x" * 62 + end) for end in "yz"]
    ids = [job_id(key) for key in keys]
    assert len({*ids}) == len(keys)
    assert max(map(len, ids)) == 63
    for name in ids:
        JobSpec.parse({"job_id": name, "endpoints": ["10.0.0.1", "10.0.0.2"]})
    job, pods = recorded("Job")
    job["metadata"]["ownerReferences"] = pods[0]["metadata"]["ownerReferences"]
    assert not is_annotated(job)
    job["metadata"]["ownerReferences"][0]["kind"] = "TrainJob"
    assert is_annotated(job)


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
    assert kept.told == [f"ring Announced: job '{ID}': 2 ranks at 2 addresses, traffic observed"]
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
    assert kept.told[-1].startswith(f"ring Released: job '{ID}' is deregistered: it ")
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
        (Ended.TAKEN_OVER, f"ring Ended: another registration, such as the program's own, has taken over job '{ID}'"),
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
