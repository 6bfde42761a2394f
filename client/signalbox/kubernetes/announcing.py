"""Derive job specs from the objects of a Kubernetes cluster: each annotated job gets a spec, or a reason for no spec.

A job is annotated with ``signalbox/announce``. This prefix is a single word, so it cannot be a domain that someone else
owns. Objects have the form of the API's JSON: JobSet (v1alpha2), mpi-operator (MPIJob v2beta1), training-operator
(PyTorchJob and MPIJob, v1) and Kubernetes (Job, batch/v1).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from signalbox.errors import FieldProblem, InvalidInput, cut
from signalbox.ip_addresses import VERSION, usable
from signalbox.jobs.spec import MAX_ENDPOINTS, JobSpec
from signalbox.spec_files import job_of_text

Body: TypeAlias = Mapping[str, Any]
"""Object of the Kubernetes API, as parsed JSON."""

Place: TypeAlias = tuple[str, ...]
"""Labels that identify a pod within its job, such as its role and its index."""

WORKERS = "signalbox/workers"

ENDED = {"Complete", "Completed", "Succeeded", "Failed"}
"""Types of conditions that mean, in any kind of job, that none of its pods runs any more."""


class JobKey(NamedTuple):
    """Kind, namespace and name, which identify a job in a cluster."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Kind:
    """Kind of training job.

    - ``places``: function that yields the places of the pods in rank order, from the job's ``spec`` and the names in
      ``signalbox/workers``; it raises ``InvalidInput``
    - ``ranks_per_pod``: function that returns the number of ranks per pod, from the job's ``spec``; 1 by default
    - ``versions``: versions of the API to watch, if the version that the cluster prefers may lack this kind; else
      empty"""

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
    """Return the reason why none of the job's pods should run; empty when they should run."""
    metadata, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "it is being deleted"
    for condition in status.get("conditions") or ():
        if condition.get("type") in ENDED and condition.get("status") == "True":
            return f"it has ended ({condition['type']})"
    suspended = spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend")
    return "it is suspended" if suspended else ""


def place_of(pod: Body) -> tuple[JobKey, Place] | None:
    """Return the training job to which a pod belongs, and the pod's place in it; None if it belongs to none."""
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
    if spec.get("completionMode") != "Indexed":
        raise InvalidInput.of(f"{path}completionMode", "must be Indexed: the index of a pod gives its rank")
    pods, at_once = spec.get("completions") or 1, spec.get("parallelism", 1)
    if at_once < pods:
        raise InvalidInput.of(f"{path}parallelism", f"must be {pods}, so that all pods run at once (given: {at_once})")
    return range(pods)


def _of_jobset(spec: Body, workers: Sequence[str]) -> Iterator[Place]:
    replicated = {each["name"]: each for each in spec.get("replicatedJobs") or ()}
    for name in workers:
        if name not in replicated:
            message = f"there is no replicated job '{cut(name)}'; there are: {cut(', '.join(replicated))}"
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


def _processes(spec: Body) -> int:
    """Return the number of ranks per pod of a PyTorchJob.

    The number is 1 for torchrun's ``auto``, ``cpu`` and ``gpu``, which depend on the machine."""
    given = str(spec.get("nprocPerNode") or "")
    return int(given) if given.isdecimal() else 1


KINDS = {
    kind.name: kind
    for kind in (
        Kind("JobSet", "jobset.x-k8s.io", "jobsets", _of_jobset),
        Kind(
            "MPIJob",
            "kubeflow.org",
            "mpijobs",
            _of_mpijob,
            lambda spec: int(spec.get("slotsPerWorker") or 1),
            ("v2beta1", "v1"),
        ),
        Kind("PyTorchJob", "kubeflow.org", "pytorchjobs", _of_pytorchjob, _processes, ("v1",)),
        Kind("Job", "batch", "jobs", lambda spec, _: ((str(index),) for index in _indexes("spec.", spec))),
    )
}


PREFIX = "signalbox/"
ANNOUNCE = "signalbox/announce"
SPEC = "signalbox/spec"
NETWORK = "signalbox/network"
ANNOTATIONS = (ANNOUNCE, SPEC, NETWORK, WORKERS)

NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"
"""Annotation in which Multus writes the networks of a pod (Network Plumbing Working Group, version 1.3)."""

MAX_JOB_ID = 63

Addresses: TypeAlias = tuple[tuple[str, ...], ...]
"""Addresses of the pods in each network; within a network, the pods are in rank order."""


@dataclass(frozen=True)
class Pod:
    """Data of a pod that an announcement needs.

    - ``place``: its place in its job
    - ``created``: creation time as text of the API; the order of these texts is that of the times
    - ``living``: whether it has neither ended nor is being deleted
    - ``addresses``: its addresses in the cluster's network; with ``hostNetwork`` the addresses of its node
    - ``networks``: value of its annotation ``NETWORK_STATUS``; empty without this annotation"""

    uid: str
    namespace: str
    name: str
    place: Place
    created: str
    living: bool
    addresses: tuple[str, ...]
    networks: str

    @classmethod
    def of(cls, body: Body) -> tuple[JobKey, Pod] | None:
        """Return the key of the pod's job, and the pod's data; None for a pod that belongs to no training job."""
        found = place_of(body)
        if found is None:
            return None
        metadata, status = body["metadata"], body.get("status") or {}
        ended = status.get("phase") in ("Succeeded", "Failed")
        listed = [each.get("ip") for each in status.get("podIPs") or ()] or [status.get("podIP")]
        return found[0], cls(
            uid=metadata["uid"],
            namespace=metadata["namespace"],
            name=metadata["name"],
            place=found[1],
            created=str(metadata.get("creationTimestamp", "")),
            living=not ended and not metadata.get("deletionTimestamp"),
            addresses=tuple(ip for ip in listed if ip),
            networks=_annotations(body).get(NETWORK_STATUS, ""),
        )


@dataclass(frozen=True)
class Ready:
    """Spec of a job whose pods all have their addresses."""

    spec: JobSpec


@dataclass(frozen=True)
class Waiting:
    """Reason why a job cannot be announced yet: some pods have no address. An earlier announcement stays in force."""

    why: str


@dataclass(frozen=True)
class Idle:
    """Reason why a job should not be announced."""

    why: str


Outcome: TypeAlias = Ready | Waiting | Idle


def job_id(key: JobKey) -> str:
    """Return the id under which a job is registered: namespace, kind and name with ``_`` between them.

    The id is unique in the cluster, because names in Kubernetes have no ``_``. An id that is too long is cut, and ends
    with a part of the SHA-256 of the whole id."""
    name = "_".join((key.namespace, key.kind.lower(), key.name))
    if len(name) <= MAX_JOB_ID:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[: MAX_JOB_ID - len(digest) - 1]}_{digest}"


def is_annotated(job: Body) -> bool:
    """Return whether a job is annotated and not itself made by another training job, such as a JobSet."""
    owners = job["metadata"].get("ownerReferences") or ()
    part = any(owner.get("controller") and owner.get("kind") in KINDS for owner in owners)
    return not part and any(name.startswith(PREFIX) for name in _annotations(job))


def announcement(key: JobKey, job: Body, pods: Iterable[Pod]) -> Outcome:
    """Return the spec to announce for a job, or why there is none. ``pods``: all known pods of the job.

    Raises ``InvalidInput`` when the job's annotations are wrong, even before the job has pods. Also raises
    ``InvalidInput`` for an object without the form of its kind: users of the cluster write these objects, and the
    cluster checks objects of some kinds only in part."""
    try:
        return _outcome(key, job, pods)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InvalidInput.of("spec", f"the {key.kind} cannot be read: {cut(str(error))}") from None


def _outcome(key: JobKey, job: Body, pods: Iterable[Pod]) -> Outcome:
    if why := stopped(job):
        return Idle(why)
    given = _annotations(job)
    InvalidInput.refuse(_wrong_annotations(given))
    if given[ANNOUNCE] != "true":
        return Idle("its annotations do not announce it")
    kind, spec = KINDS[key.kind], job.get("spec") or {}
    places = kind.places_in(spec, _names(given.get(WORKERS, "")))
    networks = _names(given.get(NETWORK, "")) or [""]
    announced = (job_id(key), given.get(SPEC, ""), kind.ranks_per_pod(spec))

    living = _living(pods, str(job["metadata"].get("creationTimestamp", "")))
    workers = [living[place] for place in places if place in living]
    addresses = tuple(tuple(_address(pod, network) for pod in workers) for network in networks)
    known = sum(map(all, zip(*addresses, strict=True)))
    if known == len(places):
        return Ready(_job_spec(*announced, addresses))
    _job_spec(*announced, _examples(len(places), len(networks)))
    return Waiting(f"{known} of {len(places)} pods have their addresses") if workers else Idle("it has no pods")


def _annotations(body: Body) -> Mapping[str, str]:
    return body["metadata"].get("annotations") or {}


def _wrong_annotations(given: Mapping[str, str]) -> Iterator[FieldProblem]:
    for name in given:
        if name.startswith(PREFIX) and name not in ANNOTATIONS:
            yield FieldProblem(name, f"there is no such annotation; there are: {', '.join(ANNOTATIONS)}")
    if given.get(ANNOUNCE, "false") not in ("true", "false"):
        yield FieldProblem(ANNOUNCE, f"must be 'true' or 'false' (given: '{cut(given[ANNOUNCE])}')")
    elif ANNOUNCE not in given:
        yield FieldProblem(ANNOUNCE, "is missing: 'true' announces the job")


def _names(text: str) -> list[str]:
    return [name for name in map(str.strip, text.split(",")) if name]


# ---- pods


def _living(pods: Iterable[Pod], since: str) -> dict[Place, Pod]:
    """Return the newest living pod of each place.

    Pods created before ``since`` belong to an earlier job of that name."""
    found = sorted((pod for pod in pods if pod.living and pod.created >= since), key=lambda pod: pod.created)
    return {pod.place: pod for pod in found}


def _address(pod: Pod, network: str) -> str:
    """Return a pod's address in the network ``network``, or in the cluster's own network if ``network`` is empty.

    The result is empty while the pod has no address there. Raises ``InvalidInput`` when job specs cannot contain any
    of the pod's addresses."""
    addresses = _addresses_in(pod, network) if network else pod.addresses
    found = usable(addresses) or ""
    if addresses and not found:
        where = f"network '{cut(network)}'" if network else "the network of the cluster"
        text = f"pod '{pod.name}' has no {VERSION} address in {where}; it has {cut(', '.join(addresses))}"
        raise InvalidInput.of(NETWORK, text)
    return found


def _addresses_in(pod: Pod, network: str) -> tuple[str, ...]:
    """Return a pod's addresses in a network; empty while the pod's networks are unknown.

    ``network``: NAMESPACE/NAME, or NAME in the pod's own namespace."""
    if not pod.networks:
        return ()
    try:
        ips = {str(each["name"]): tuple(map(str, each.get("ips") or ())) for each in reversed(json.loads(pod.networks))}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidInput.of(NETWORK, f"{NETWORK_STATUS} of pod '{pod.name}' cannot be read") from None
    for name in (network, f"{pod.namespace}/{network}"):
        if name in ips:
            return ips[name]
    text = f"pod '{pod.name}' is not in network '{cut(network)}'; it is in {cut(', '.join(reversed(ips))) or 'none'}"
    raise InvalidInput.of(NETWORK, text)


def _examples(pods: int, networks: int) -> Addresses:
    """Return example addresses in place of unknown ones, so that all other fields of the spec can be checked."""
    numbers = range(1, pods + 1)
    return tuple(tuple(f"10.{rail}.{n >> 8}.{n & 255}" for n in numbers) for rail in range(networks))


# ---- the spec


@lru_cache(maxsize=64)
def _job_spec(name: str, text: str, ranks_per_pod: int, addresses: Addresses) -> JobSpec:
    """Return the job's spec, cached because each new pod causes another call. Raises ``InvalidInput``."""

    def completed(given: Mapping[str, Any]) -> Mapping[str, Any]:
        ranks = given.get("ranks_per_host", ranks_per_pod)
        if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= MAX_ENDPOINTS:
            raise InvalidInput.of("ranks_per_host", f"must be a number from 1 to {MAX_ENDPOINTS}")
        endpoints, *rails = [[ip for ip in of_pods for _ in range(ranks)] for of_pods in addresses]
        others = {field: value for field, value in given.items() if field != "ranks_per_host"}
        return {**others, "job_id": name, "endpoints": endpoints, "rails": [{"endpoints": rail} for rail in rails]}

    return job_of_text(text, SPEC, _KNOWN, completed)


_KNOWN = {
    "job_id": "is derived from the names of the namespace, the kind and the job: leave it out",
    "endpoints": "are the addresses of the pods: leave them out",
    "hosts": "are the addresses of the pods: leave them out",
    "rails": f"are the addresses of the pods: leave them out, and name several networks in {NETWORK}",
}
"""Fields of a job spec that the user must not give, because the cluster determines them; each with the reason."""
