"""Find the training jobs among Kubernetes objects, and the rank of each of their pods.

The functions read API objects in the form of their JSON. They follow the types of JobSet (v1alpha2), mpi-operator
(MPIJob v2beta1), training-operator (PyTorchJob and MPIJob, v1) and Kubernetes (Job, batch/v1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from signalbox.errors import InvalidInput
from signalbox.jobs.spec import MAX_ENDPOINTS

Body: TypeAlias = Mapping[str, Any]
"""An API object."""

Place: TypeAlias = tuple[str, ...]
"""Labels that identify a pod within its job, such as its role and its index."""

WORKERS = "signalbox/workers"

ENDED = {"Complete", "Completed", "Succeeded", "Failed"}
"""Types of conditions, of any kind of job, after which no pod of the job runs."""


class JobKey(NamedTuple):
    """Kind, namespace and name, which identify a job in a cluster."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Kind:
    """Kind of training job.

    - ``places``: yields the places of the pods in rank order, from the job's ``spec`` and the names in
      ``signalbox/workers``; raises ``InvalidInput``
    - ``ranks_per_pod``: returns the number of ranks per pod from the job's ``spec``, 1 by default
    - ``versions``: versions of the API to watch, for a group whose preferred version may lack this kind; empty for the
      version that the cluster prefers"""

    name: str
    group: str
    plural: str
    places: Callable[[Body, Sequence[str]], Iterator[Place]]
    ranks_per_pod: Callable[[Body], int] = lambda _: 1
    versions: tuple[str, ...] = ()

    def places_in(self, spec: Body, workers: Sequence[str]) -> list[Place]:
        """Return the places of the pods, at least one. Raises ``InvalidInput``."""
        if workers and self.name != "JobSet":
            raise InvalidInput.of(WORKERS, f"is for JobSets only; omit it for a {self.name}")
        places = [*islice(self.places(spec, workers), MAX_ENDPOINTS + 1)]
        if len(places) > MAX_ENDPOINTS:
            raise InvalidInput.of("spec", f"at most {MAX_ENDPOINTS} pods can be announced as one job")
        if not places:
            raise InvalidInput.of("spec", "the job has no workers")
        return places


def stopped(job: Body) -> str:
    """Return why none of the job's pods should run; empty when they should."""
    metadata, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "it is being deleted"
    for condition in status.get("conditions") or ():
        if condition.get("type") in ENDED and condition.get("status") == "True":
            return f"it has ended ({condition['type']})"
    suspended = spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend")
    return "it is suspended" if suspended else ""


def place_of(pod: Body) -> tuple[JobKey, Place] | None:
    """Return the job of a pod and the pod's place in it; None for a pod that belongs to no training job."""
    metadata = pod["metadata"]
    labels: dict[str, str] = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    index = labels.get("batch.kubernetes.io/job-completion-index", "")
    if name := labels.get("jobset.sigs.k8s.io/jobset-name"):
        replicated, number = (
            labels.get(f"jobset.sigs.k8s.io/{key}", "") for key in ("replicatedjob-name", "job-index")
        )
        return JobKey("JobSet", metadata["namespace"], name), (replicated, number, index)
    if name := labels.get("training.kubeflow.org/job-name"):
        role = labels.get("training.kubeflow.org/replica-type") or labels.get("training.kubeflow.org/job-role", "")
        match labels.get("training.kubeflow.org/operator-name"):
            case "pytorchjob-controller":
                number = labels.get("training.kubeflow.org/replica-index", "")
                return JobKey("PyTorchJob", metadata["namespace"], name), (role, number)
            case "mpi-operator" | "mpijob-controller":
                # The number is from the pod's name: the label counts the launcher too when it is also a worker.
                worker = re.search(r"-worker-(\d+)$", metadata["name"])
                return JobKey("MPIJob", metadata["namespace"], name), (role, worker[1] if worker else "")
    if name := labels.get("batch.kubernetes.io/job-name"):
        return JobKey("Job", metadata["namespace"], name), (index,)
    return None


def _indexes(path: str, spec: Body) -> range:
    """Return the indexes of the pods of a batch Job."""
    if spec.get("completionMode") != "Indexed":
        raise InvalidInput.of(f"{path}completionMode", "must be Indexed: the index of a pod gives its rank")
    pods, at_once = spec.get("completions") or 1, spec.get("parallelism", 1)
    if at_once < pods:
        raise InvalidInput.of(f"{path}parallelism", f"must be {pods}, all pods at once (given: {at_once})")
    return range(pods)


def _of_job(spec: Body, _: Sequence[str]) -> Iterator[Place]:
    return ((str(index),) for index in _indexes("spec.", spec))


def _of_jobset(spec: Body, workers: Sequence[str]) -> Iterator[Place]:
    replicated = {each["name"]: each for each in spec.get("replicatedJobs") or ()}
    for name in workers:
        if name not in replicated:
            message = f"there is no replicated job '{name}'; there are: {', '.join(replicated)}"
            raise InvalidInput.of(WORKERS, message)
    for name, each in replicated.items():
        if name in workers or not workers:
            pods = _indexes(f"spec of '{name}': ", each["template"]["spec"])
            yield from ((name, str(job), str(pod)) for job in range(each.get("replicas", 1)) for pod in pods)


def _of_mpijob(spec: Body, _: Sequence[str]) -> Iterator[Place]:
    if spec.get("runLauncherAsWorker"):
        yield ("launcher", "")
    yield from (("worker", str(index)) for index in range(_replicas(spec, "mpiReplicaSpecs", "Worker")))


def _of_pytorchjob(spec: Body, _: Sequence[str]) -> Iterator[Place]:
    for role in ("Master", "Worker"):
        replicas = _replicas(spec, "pytorchReplicaSpecs", role)
        yield from ((role.lower(), str(index)) for index in range(replicas))


def _replicas(spec: Body, field: str, role: str) -> int:
    of_role = (spec.get(field) or {}).get(role)
    return 0 if of_role is None else int(of_role.get("replicas", 1))


def _slots(spec: Body) -> int:
    return int(spec.get("slotsPerWorker") or 1)


def _processes(spec: Body) -> int:
    """Return the ranks per pod; 1 for torchrun's ``auto``, ``cpu`` and ``gpu``, which depend on the machine."""
    given = str(spec.get("nprocPerNode") or "")
    return int(given) if given.isdecimal() else 1


KINDS = {
    kind.name: kind
    for kind in (
        Kind("JobSet", "jobset.x-k8s.io", "jobsets", _of_jobset),
        Kind("MPIJob", "kubeflow.org", "mpijobs", _of_mpijob, _slots, ("v2beta1", "v1")),
        Kind("PyTorchJob", "kubeflow.org", "pytorchjobs", _of_pytorchjob, _processes, ("v1",)),
        Kind("Job", "batch", "jobs", _of_job),
    )
}
