"""``signalbox kubernetes`` with the real kopf, between a stand-in for the Kubernetes API server and the real API.

The stand-in replays objects of a real cluster: see tests/data/README.md."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from signalbox.jobs.spec import JobId
from tests.support.doc_pages import PAGES, ROOT
from tests.support.kubernetes_objects import annotate, named, recorded, replacement
from tests.support.waiting import DEADLINE_S, until
from tests.support.wire.control_stand_in import Running
from tests.support.wire.kubernetes_api import Cluster, running_cluster

GUIDE = next(page for page in PAGES if page.name == "docs/how-to/join-from-kubernetes.md")
MANIFEST = ROOT / "deploy/kubernetes/signalbox.yaml"

COMMAND = """
import sys
from signalbox import __main__
from signalbox.kubernetes import operator
operator.CHECK_S = 0.2
operator.BACKOFFS_S = (0.01,)
operator.AGAIN_S = float(sys.argv.pop(1))
__main__.main()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Run a cluster whose API allows what the delivered manifest requests, and nothing else."""
    (role,) = (each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "ClusterRole")
    with running_cluster(role, tmp_path / "kubeconfig") as cluster:
        yield cluster
    assert cluster.refused == []


@contextmanager
def following(
    api: Running, tmp_path: Path, *options: str, end: signal.Signals = signal.SIGTERM, again_s: float = 0.2
) -> Iterator[None]:
    command = [sys.executable, "-c", COMMAND, str(again_s), "kubernetes", "--address", api.addresses[0], *options]
    with (tmp_path / "log").open("ab") as log:
        process = subprocess.Popen(command, env=environment(tmp_path), stdout=log, stderr=log)
    try:
        yield
        assert process.poll() is None
    finally:
        process.send_signal(end)
        status = process.wait(DEADLINE_S)
    assert status == (0 if end is signal.SIGTERM else -end), log_of(tmp_path)


def endpoints(api: Running, job_id: str) -> tuple[str, ...]:
    job = api.control.registry.jobs.get(JobId(job_id))
    return job.spec.endpoints if job else ()


def uid_of(api: Running, job_id: str) -> str:
    return api.control.registry.jobs[JobId(job_id)].uid


def log_of(tmp_path: Path) -> str:
    return (tmp_path / "log").read_text()


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig"), "XDG_STATE_HOME": str(tmp_path / "state")}


def of_object(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    return [(event["type"], event["reason"]) for event in cluster.events if event["involvedObject"]["name"] == name]


def test_a_job_follows_its_pods_and_is_released_when_it_is_deleted(
    cluster: Cluster, api: Running, tmp_path: Path
) -> None:
    """SIGKILL ends the first process. Another pod is replaced meanwhile, and the next process updates the same job."""
    job, pods = recorded("JobSet")
    cluster.put(job, *pods)
    name = "ml_jobset_llama"
    with following(api, tmp_path, end=signal.SIGKILL):
        until(lambda: endpoints(api, name) == ("10.0.2.1", "10.0.3.1", "10.0.4.1", "10.0.5.1"))
        uid = uid_of(api, name)
        old = named(pods, "workers-1-1")
        new = replacement(old, "10.244.9.7")
        status = new["metadata"]["annotations"].pop("k8s.v1.cni.cncf.io/network-status")
        cluster.delete(old)
        cluster.put(new)
        new["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"] = status.replace("10.0.5.1", "10.0.9.1")
        cluster.put(new)
        until(lambda: endpoints(api, name)[3:] == ("10.0.9.1",))
        until(lambda: of_object(cluster, "llama") == [("Normal", "Announced"), ("Normal", "Updated")])
        until(lambda: any((tmp_path / "state").rglob(f"{name}.token")))
    status = new["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"]
    new["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"] = status.replace("10.0.9.1", "10.0.8.1")
    cluster.put(new)
    with following(api, tmp_path):
        until(lambda: endpoints(api, name)[3:] == ("10.0.8.1",))
        assert uid_of(api, name) == uid
        cluster.delete(job)
        until(lambda: endpoints(api, name) == ())


def test_the_job_of_the_guide_is_registered_with_its_commands(cluster: Cluster, api: Running, tmp_path: Path) -> None:
    (block,) = (block for block in GUIDE.blocks if block.language == "yaml")
    job, (_, recorded_pods) = yaml.safe_load(block.text), recorded("JobSet")
    job["metadata"] |= {"uid": "of-the-guide", "creationTimestamp": "2026-11-24T03:00:00Z"}
    cluster.put(job, *(in_place(recorded_pods[0], number) for number in range(4)))
    commands = [line for line in GUIDE.commands() if line.startswith(("signalbox jobs", "signalbox token"))]
    assert len(commands) == 2
    with following(api, tmp_path):
        until(lambda: len(endpoints(api, "ml_jobset_llama")) == 4)
        for command in commands:
            words = command.replace("signalbox", f"{sys.executable} -m controller", 1)
            address = {**os.environ, "SIGNALBOX_ADDRESS": api.addresses[0]}
            said = subprocess.check_output(words, shell=True, cwd=tmp_path, env=address, text=True)
            assert "ml_jobset_llama" in said or "token" in command
    assert (tmp_path / "token").read_text()


def in_place(pod: dict[str, Any], number: int) -> dict[str, Any]:
    """Return a copy of the pod as pod ``number`` of the first job of the replicated job ``workers``."""
    new = deepcopy(pod)
    new["metadata"] |= {"name": f"llama-workers-0-{number}", "uid": f"pod-{number}"}
    for labels in (new["metadata"]["labels"], new["metadata"]["annotations"]):
        labels |= {"jobset.sigs.k8s.io/replicatedjob-name": "workers", "jobset.sigs.k8s.io/job-index": "0"}
        labels |= {"batch.kubernetes.io/job-completion-index": str(number)}
    new["status"] |= {"podIP": f"10.0.{number + 1}.1", "podIPs": [{"ip": f"10.0.{number + 1}.1"}]}
    return new


def test_every_kind_is_followed_until_its_end_or_an_unseen_deletion(
    cluster: Cluster, api: Running, tmp_path: Path
) -> None:
    """Jobs in namespaces that are not named are not followed."""
    jobs = {}
    cluster.put(recorded("JobSet")[0], *recorded("JobSet")[1])
    with following(api, tmp_path, "--namespace", "research", "--namespace", "hpc", "--namespace", "default"):
        for kind in ("PyTorchJob", "MPIJob", "Job"):
            jobs[kind], pods = recorded(kind)
            annotate(jobs[kind], spec="library: mpi" if kind == "Job" else None)
            cluster.put(jobs[kind], *pods)
        until(lambda: of_object(cluster, "ring") == [("Warning", "NotAnnounced")])
        assert any(event["message"].startswith("signalbox/spec:1:1: library: ") for event in cluster.events)
        annotate(jobs["Job"], spec=None)
        cluster.put(jobs["Job"])
        until(lambda: len(endpoints(api, "research_pytorchjob_bert")) == 6)
        until(lambda: len(endpoints(api, "hpc_mpijob_allreduce")) == 4)
        until(lambda: len(endpoints(api, "default_job_ring")) == 2)
        jobs["MPIJob"]["status"]["conditions"].append({"type": "Succeeded", "status": "True"})
        cluster.put(jobs["MPIJob"])
        until(lambda: endpoints(api, "hpc_mpijob_allreduce") == ())
        assert len(endpoints(api, "default_job_ring")) == 2
        cluster.delete_unseen(jobs["Job"])
        until(lambda: endpoints(api, "default_job_ring") == ())
        assert endpoints(api, "research_pytorchjob_bert")
        assert not endpoints(api, "ml_jobset_llama")


def test_while_the_cluster_refuses_requests_jobs_stay_registered(
    cluster: Cluster, api: Running, tmp_path: Path
) -> None:
    job, pods = recorded("Job")
    annotate(job, spec="lease_s: 2")
    cluster.put(job, *pods)
    with following(api, tmp_path):
        until(lambda: len(endpoints(api, "default_job_ring")) == 2)
        uid = uid_of(api, "default_job_ring")
        rules, cluster.rules = cluster.rules, ()
        cluster.forget_history()
        until(lambda: log_of(tmp_path).count("cannot watch the cluster") > 1)
        lease_ends = api.control.registry.jobs[JobId("default_job_ring")].vitals.lease_ends_at
        until(lambda: api.control.registry.jobs[JobId("default_job_ring")].vitals.lease_ends_at > lease_ends)
        cluster.delete(pods[0])
        cluster.put(replacement(pods[0], "10.244.40.1"))
        cluster.rules = rules
        until(lambda: endpoints(api, "default_job_ring") == ("10.244.40.1", "10.244.32.9"))
        assert uid_of(api, "default_job_ring") == uid
    assert len(endpoints(api, "default_job_ring")) == 2, "its end releases nothing"
    cluster.refused.clear()


def test_it_can_be_ended_while_the_cluster_is_away(api: Running, tmp_path: Path) -> None:
    with running_cluster({"rules": ()}, tmp_path / "kubeconfig"):
        pass
    with following(api, tmp_path, again_s=1000.0):
        until(lambda: "cannot watch the cluster" in log_of(tmp_path))


SIGNALLED_WHILE_KOPF_FAILS = """
import os, signal, sys
from signalbox import __main__
from signalbox.kubernetes import operator
async def kopf_operator(**_):
    os.kill(os.getpid(), signal.SIGTERM)
    raise OSError("no route to host")
operator.kopf.operator = kopf_operator
__main__.main()
"""


@pytest.mark.usefixtures("cluster")
def test_a_signal_that_comes_while_kopf_does_not_run_ends_it(api: Running, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SIGNALLED_WHILE_KOPF_FAILS, "kubernetes", "--address", api.addresses[0]]
    assert subprocess.run(command, env=environment(tmp_path), timeout=DEADLINE_S, check=False).returncode == 0


def test_without_a_cluster_the_command_says_so(tmp_path: Path) -> None:
    nowhere = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": ""}
    command = [sys.executable, "-m", "signalbox", "kubernetes"]
    done = subprocess.run(command, env=nowhere, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: no cluster is configured: there is neither a service account nor a kubeconfig file\n"
