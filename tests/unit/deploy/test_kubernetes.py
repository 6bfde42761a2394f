"""The manifest for a cluster, and the page about it, as far as they can be checked without a cluster."""

from typing import Any

import yaml
from typer.main import get_command

from signalbox.cli import app
from signalbox.jobs.spec import Library
from signalbox.kubernetes.announcing import KINDS, JobKey, Pod, Ready, announcement, is_annotated
from tests.support.doc_pages import PAGES, ROOT

PAGE = next(page for page in PAGES if page.name == "docs/how-to/join-from-kubernetes.md")
MANIFEST = ROOT / "deploy/kubernetes/signalbox.yaml"
OBJECTS: dict[str, dict[str, Any]] = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}
POD = OBJECTS["Deployment"]["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
ENVIRONMENT = {each["name"]: each["value"] for each in CONTAINER["env"]}


def test_it_may_read_what_it_watches_post_events_and_nothing_else() -> None:
    may = {
        (group, resource, verb)
        for rule in OBJECTS["ClusterRole"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    watched = {("", "pods"), *((kind.group, kind.plural) for kind in KINDS.values())}
    assert may == {(*each, verb) for each in watched for verb in ("list", "watch")} | {("", "events", "create")}


def test_its_pod_has_these_rights() -> None:
    account, binding = OBJECTS["ServiceAccount"], OBJECTS["ClusterRoleBinding"]
    assert binding["roleRef"]["name"] == OBJECTS["ClusterRole"]["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert subject == {"kind": "ServiceAccount", **account["metadata"]}
    assert POD["spec"]["serviceAccountName"] == account["metadata"]["name"]


def test_the_parts_of_the_manifest_fit_together() -> None:
    namespaced = {kind for kind, each in OBJECTS.items() if "namespace" in each["metadata"]}
    assert namespaced == OBJECTS.keys() - {"Namespace", "ClusterRole", "ClusterRoleBinding"}
    assert {OBJECTS[kind]["metadata"]["namespace"] for kind in namespaced} == {OBJECTS["Namespace"]["metadata"]["name"]}
    spec = OBJECTS["Deployment"]["spec"]
    assert spec["selector"]["matchLabels"] == POD["metadata"]["labels"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in POD["spec"]["volumes"]}
    assert mounts.keys() == volumes.keys()
    claim = OBJECTS["PersistentVolumeClaim"]["metadata"]["name"]
    assert volumes["state"]["persistentVolumeClaim"] == {"claimName": claim}
    assert ENVIRONMENT["XDG_STATE_HOME"] == mounts["state"]


def test_the_secret_that_the_page_makes_has_the_files_that_the_pod_is_told() -> None:
    (command,) = (line.split() for line in PAGE.commands() if line.startswith("kubectl create secret"))
    options = dict(zip(command[5::2], command[6::2], strict=True))
    assert (command[4], options["--namespace"]) == ("signalbox", OBJECTS["Namespace"]["metadata"]["name"])
    (volume,) = (volume["secret"] for volume in POD["spec"]["volumes"] if "secret" in volume)
    assert volume["secretName"] == command[4]
    files = [name for option, name in zip(command[5::2], command[6::2], strict=True) if option == "--from-file"]
    paths = [ENVIRONMENT[name] for name in ("SIGNALBOX_TLS_CA", "SIGNALBOX_TOKEN_FILE")]
    assert paths == [f"/etc/signalbox/{name}" for name in files]
    assert "/etc/signalbox" in {mount["mountPath"] for mount in CONTAINER["volumeMounts"]}


def test_it_runs_a_command_that_exists_from_the_image_that_is_built() -> None:
    program, command = CONTAINER["command"]
    assert program == "signalbox"
    options = get_command(app).commands[command].params  # type: ignore[attr-defined]
    assert ENVIRONMENT.keys() - {"XDG_STATE_HOME"} <= {option.envvar for option in options}
    target, _, _ = CONTAINER["image"].removeprefix("signalbox-").partition(":")
    assert f" AS {target}\n" in (ROOT / "deploy/Dockerfile").read_text()


def test_the_job_of_the_page_is_announced_as_the_page_says() -> None:
    (block,) = (block for block in PAGE.blocks if block.language == "yaml")
    job = yaml.safe_load(block.text)
    key = JobKey(job["kind"], job["metadata"]["namespace"], job["metadata"]["name"])
    assert is_annotated(job)
    pods = [
        Pod(str(n), key.namespace, f"llama-{n}", ("workers", "0", str(n)), "", True, (f"10.0.{n}.1",), "")
        for n in range(4)
    ]
    outcome = announcement(key, job, pods)
    assert isinstance(outcome, Ready)
    assert outcome.spec.endpoints == ("10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.3.1")
    assert (outcome.spec.library, outcome.spec.observed) == (Library.NCCL, False)
    assert f"signalbox jobs show {outcome.spec.job_id}" in PAGE.commands()
