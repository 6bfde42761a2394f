"""Objects of a Kubernetes cluster (see ``tests/data/README.md``): a training job of each kind, with its pods."""

from copy import deepcopy
from functools import cache
from typing import Any

import yaml

from tests.support.doc_pages import ROOT

DATA = ROOT / "tests/data/kubernetes"
FILES = {"JobSet": "jobset.yaml", "PyTorchJob": "pytorchjob.yaml", "MPIJob": "mpijob.yaml", "Job": "job.yaml"}


@cache
def _read(kind: str) -> tuple[dict[str, Any], ...]:
    return tuple(yaml.safe_load_all((DATA / FILES[kind]).read_text()))


def recorded(kind: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a copy of the recorded job and of its pods, which the test may change."""
    job, *pods = deepcopy(_read(kind))
    return job, pods


def annotate(body: dict[str, Any], **annotations: str | None) -> None:
    """Set annotations of an object: ``announce`` sets ``signalbox/announce``; None removes it."""
    of_body = body["metadata"].setdefault("annotations", {})
    for name, value in annotations.items():
        of_body.pop(f"signalbox/{name}", None)
        if value is not None:
            of_body[f"signalbox/{name}"] = value


def named(pods: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (pod,) = (pod for pod in pods if name in pod["metadata"]["name"])
    return pod


def replacement(pod: dict[str, Any], ip: str) -> dict[str, Any]:
    new = deepcopy(pod)
    new["metadata"] |= {"uid": f"{pod['metadata']['uid']}-2", "creationTimestamp": "2026-11-24T04:00:00Z"}
    new["status"] |= {"podIP": ip, "podIPs": [{"ip": ip}]}
    return new
