"""The services of ``docker-compose.yml`` on the images of ``deploy/Dockerfile``, without an engine.

The services work, and each restarts alone. Images are built in folders, with a Debian of debootstrap as their base.
Debian's Prometheus and Alertmanager replace the images that cannot be downloaded here. Grafana is not run."""

import json
import logging
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.config import load
from controller.serving import haproxy
from mininet_topos.lab.record import run, wait_for
from tests.support.compose_files import services
from tests.support.containers import DYNAMIC, Container, Engine, StandIn, wait_healthy
from tests.support.debian_root import DebianRoot, debootstrap
from tests.support.dockerfile import Build, Image, Sources
from tests.support.lab.needs import needs
from tests.support.wire.certificates import Authority

pytestmark = [pytest.mark.long, pytest.mark.mirror, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
log = logging.getLogger(__name__)
REAL = "docker-compose.fabric.yml"
NOBODY = 65534
OF_IMAGES = 10001
LINKS = 32
JOBS = ("ring1", "ring2", "ring3")
TARGETS = {"signalbox", "prometheus", "alertmanager"}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    needs(None if shutil.which("debootstrap") else "debootstrap is not installed")
    folder = tmp_path_factory.mktemp("images")
    sources = Sources(ROOT)
    yield Build((ROOT / "deploy/Dockerfile").read_text(), sources, debootstrap(folder / "debian"), folder)
    shutil.rmtree(folder)


def prometheus_and_alertmanager(base: DebianRoot, folder: Path) -> dict[str, StandIn]:
    root = base.copy(folder)
    root.install("prometheus", "prometheus-alertmanager", "wget")
    for name in ("prometheus", "alertmanager"):
        data = root.folder / name
        data.mkdir()
        shutil.chown(data, NOBODY, NOBODY)
    image = Image(root, {"PATH": "/usr/bin:/bin"})
    return {"prometheus": StandIn(image, ("prometheus",)), "alertmanager": StandIn(image, ("prometheus-alertmanager",))}


class Running:
    """State of the fabric, as the containers report it."""

    def __init__(self, engine: Engine, containers: dict[str, Container]) -> None:
        self.engine = engine
        self.containers = containers

    def ask(self, *words: str) -> Any:
        done = self.containers["controller"].run("signalbox", *words, "--json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def iterations(self) -> dict[str, int]:
        listed = self.ask("jobs", "list") or {}
        return {job["spec"]["job_id"]: int(job["iterations"]) for job in listed.get("jobs", ())}

    def get(self, service: str, path: str) -> Any:
        address = self.engine.address(service, "pages")
        port = {"web": 8080, "prometheus": 9090, "alertmanager": 9093}[service]
        return self.engine.fetch(f"http://{address}:{port}{path}")

    def targets_up(self) -> set[str]:
        answer = json.loads(self.get("prometheus", "/api/v1/targets"))
        return {t["labels"]["job"] for t in answer["data"]["activeTargets"] if t["health"] == "up"}

    def alerts(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in json.loads(self.get("alertmanager", "/api/v2/alerts"))}

    def wait_trains(self) -> None:
        wait_for(self._pinned, "all jobs to be pinned", 180, 1.0)
        before = self.iterations()
        wait_for(lambda: self._further(before), f"all jobs to go on from {before}", 120, 1.0)

    def _pinned(self) -> bool:
        listed = (self.ask("jobs", "list") or {}).get("jobs", ())
        return {job["spec"]["job_id"] for job in listed if job["state"] == "pinned"} == set(JOBS)

    def _further(self, before: dict[str, int]) -> bool:
        now = self.iterations()
        return all(now.get(job, 0) not in (0, before.get(job, 0)) for job in JOBS)


def test_all_services_work_and_each_comes_back_alone(build: Build, tmp_path: Path) -> None:
    file = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    roles = {"fabric": "emulator", "controller": "controller", "web": "web"}
    assert {name: file["services"][name]["build"]["target"] for name in roles} == roles
    images: dict[str, Image | StandIn] = {name: build.image(role) for name, role in roles.items()}
    images |= prometheus_and_alertmanager(build.base, tmp_path / "monitoring")
    assert images.keys() == file["services"].keys() - {"grafana"}
    engine = Engine(ROOT, file, images, tmp_path)
    with engine.containers() as containers:
        running = Running(engine, containers)
        for container in containers.values():
            container.start()
        log.info("all healthy after %.0f s", wait_healthy(list(containers.values())))
        wait_for(lambda: (running.ask("status") or {}).get("links") == LINKS, "all links to be found", 120, 1.0)
        wait_for(lambda: "SignalboxLinkDown" in running.alerts(), "an alert of the cable that is cut", 420, 1.0)
        log.info("an alert has arrived")
        running.wait_trains()
        log.info("iterations: %s", running.iterations())
        assert "<title>Signalbox</title>" in running.get("web", "/")
        wait_for(lambda: running.targets_up() == TARGETS, "all targets to be up", 60, 1.0)
        for name in ("controller", "fabric", "web", "prometheus", "alertmanager"):
            containers[name].kill()
            containers[name].start()
            log.info("%s healthy after %.0f s", name, wait_healthy(list(containers.values())))
            running.wait_trains()
            wait_for(lambda: running.targets_up() == TARGETS, "all targets to be up", 60, 1.0)
            log.info("iterations: %s", running.iterations())
            assert "<title>Signalbox</title>" in running.get("web", "/")
        ended = {name: container.stop() for name, container in containers.items()}
        assert ended == {**dict.fromkeys(containers, 0), "fabric": 128 + signal.SIGTERM}


def test_a_real_fabric_has_a_controller_that_wants_certificates_and_tokens_and_a_page_that_has_one(
    build: Build, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    token = make_files_of_fabric(project, tmp_path)
    file = yaml.safe_load((ROOT / REAL).read_text()) | {"services": services(REAL)}
    images: dict[str, Image | StandIn] = {name: build.image(name) for name in ("controller", "haproxy", "web")}
    engine = Engine(project, file, images, tmp_path)
    with engine.containers() as containers:
        for container in containers.values():
            container.start()
        wait_healthy(list(containers.values()))
        assert containers["web"].run("signalbox", "status").returncode == 0
        assert containers["web"].run("signalbox", "drain", "spine1").returncode != 0
        assert "token" in containers["controller"].run("signalbox", "status").stderr
        words = ["ip", "netns", "exec", engine.prefix, sys.executable, "-m", "signalbox", "status"]
        words += ["--address", f"{engine.address('haproxy', 'pages')}:50051"]
        assert subprocess.run(words, capture_output=True, check=False).returncode != 0
        words += ["--tls-ca", str(tmp_path / "ca.pem"), "--token-file", str(token)]
        assert "signalbox" in run(*words)
        assert "<title>Signalbox</title>" in engine.fetch(f"http://{engine.address('web', 'pages')}:8080/")
        assert {name: container.stop() for name, container in containers.items()}["controller"] == 0


def make_files_of_fabric(project: Path, folder: Path) -> Path:
    """Make the files of docs/how-to/install.md; return a copy of the reader's token that this process can read."""
    authority = Authority(folder, "ca")
    address = DYNAMIC[3]  # HAProxy is the second of three by name
    made = authority.sign("controller", also=f"IP:{address}")
    controller, proxy, web = (project / "fabric" / name for name in ("controller", "haproxy", "web"))
    for folder_of_one in (controller, proxy, web):
        folder_of_one.mkdir(parents=True)
    shutil.copy(ROOT / "deploy/signalbox-fabric.toml", controller / "signalbox.toml")
    shutil.copy(made.certificate, controller / "controller.pem")
    shutil.copy(made.private_key, controller / "controller.pem.key")
    shutil.copy(authority.certificate, controller / "switches-ca.pem")
    lines = haproxy.configuration(load(controller / "signalbox.toml").api).splitlines(keepends=True)
    (proxy / "haproxy.cfg").write_text("".join(line for line in lines if not line.endswith("haproxy\n")))
    words = [sys.executable, "-m", "signalbox", "token", "page", "--role", "reader"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    (controller / "tokens.toml").write_text(done.stderr)
    (web / "reader.token").write_text(done.stdout)
    token = folder / "reader.token"
    token.touch(0o600)
    token.write_text(done.stdout)
    for path in (controller, web):
        for file in (path, *path.iterdir()):
            shutil.chown(file, OF_IMAGES, OF_IMAGES)
            file.chmod(0o755 if file == path else 0o600)
    return token
