"""The compose files, without an engine; ``tests/lab/test_compose.py`` runs them.

The files are valid for both versions of Compose. No service has more rights than it needs, and no restart of a service
strands another service."""

import http.server
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from controller.config import load
from tests.support.compose_files import services
from tests.support.dockerfile import Sources, stages
from tests.support.lab.needs import needs

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
EMULATED, REAL, MEMBERS = "docker-compose.yml", "docker-compose.fabric.yml", "docker-compose.members.yml"
FILES = pytest.mark.parametrize("file", [EMULATED, REAL])
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def make_members(project: Path) -> None:
    members = [f"{name}=10.0.0.{n}" for n, name in enumerate("abc", 1)]
    subprocess.run([DEPLOY / "members/make-files.sh", project / "members", *members], check=True)


def test_compose_2_accepts_them() -> None:
    check = Path(sys.executable).parent / "check-jsonschema"
    files = [ROOT / file for file in (EMULATED, REAL, MEMBERS)]
    argv: list[str | Path] = [check, "--builtin-schema", "vendor.compose-spec", *files]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", [EMULATED, REAL, MEMBERS])
def test_compose_1_29_accepts_it(file: str, tmp_path: Path) -> None:
    needs(None if shutil.which("docker-compose") else "docker-compose is not installed")
    project = ROOT
    if file == MEMBERS:
        make_members(project := tmp_path)
        shutil.copy(ROOT / file, project)
    done = subprocess.run(["docker-compose", "-f", project / file, "config"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["services"].keys() == services(file).keys()


@FILES
def test_only_the_emulator_has_rights_and_a_service_that_restarts_strands_no_other(file: str) -> None:
    """No service shares its namespaces with another one, or waits for another one to start."""
    for name, service in services(file).items():
        assert not {"network_mode", "pid", "ipc", "depends_on", "links", "volumes_from"} & service.keys(), name
        assert service["restart"] == "unless-stopped", name
        assert service["read_only"] is True, name
        if name == "fabric":
            continue
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "cap_add", "devices"} & service.keys(), name
        assert int(service["user"].split(":")[0]) > 0, name


def test_members_have_no_rights_and_the_files_that_the_script_makes(tmp_path: Path) -> None:
    make_members(tmp_path)
    found = services(MEMBERS)
    assert found.keys() == {f"{kind}-{name}" for kind in ("etcd", "controller") for name in "abc"}
    for name, service in found.items():
        rights = {"cap_drop": ["ALL"], "read_only": True, "security_opt": ["no-new-privileges:true"]}
        assert {**service, **rights, "user": "10001:10001", "network_mode": "host"} == service, name
        assert not {"privileged", "cap_add", "devices", "pid", "ipc", "depends_on", "ports"} & service.keys(), name
        mounts = [volume.split(":")[0] for volume in service["volumes"]]
        named = [path for path in (service["env_file"], *mounts) if path.startswith("./")]
        assert {path.split("/")[2] for path in named} == {name[-1]}
        assert not [path for path in named if not (tmp_path / path).exists()]
        assert service["build"]["target"] in stages(DOCKERFILE)


@FILES
def test_health_checks_start_no_python(file: str) -> None:
    programs = {name: service["healthcheck"]["test"][1] for name, service in services(file).items()}
    assert set(programs.values()) <= {"healthy", "ovs-vsctl", "wget", "curl"}
    assert (DEPLOY / "healthy.sh").read_text().startswith("#!/bin/bash\n")
    assert "COPY deploy/healthy.sh /usr/local/bin/healthy\n" in DOCKERFILE


@FILES
def test_only_what_switches_and_trainers_need_is_published_for_others(file: str) -> None:
    published = [(name, port) for name, service in services(file).items() for port in service.get("ports", ())]
    public = [(name, port) for name, port in published if not port.startswith("127.0.0.1:")]
    assert public == ([] if file == EMULATED else [("controller", "6653:6653"), ("haproxy", "50051:50051")])
    assert len(published) - len(public) == 4


@FILES
def test_images_are_pinned_and_those_of_ours_are_stages_of_the_dockerfile(file: str) -> None:
    of_dockerfile = stages(DOCKERFILE)
    pulled = [stage.base for stage in of_dockerfile.values() if stage.base not in of_dockerfile]
    for service in services(file).values():
        if "build" in service:
            target = service["build"]["target"]
            assert target in of_dockerfile
            assert service["image"].startswith(f"signalbox-{target}:")
        else:
            pulled.append(service["image"])
    assert all(re.search(r":v?\d+\.\d+\.?\d*(-slim)?$", image) for image in pulled), pulled


def test_what_is_mounted_and_copied_exists_and_nothing_else_is_sent() -> None:
    mounts = [volume.split(":")[0] for service in services(EMULATED).values() for volume in service["volumes"]]
    assert not [path for path in mounts if path.startswith("./") and not (ROOT / path).exists()]
    sent = [str(path) for path in Sources(ROOT).files()]
    copied = [
        word
        for stage in stages(DOCKERFILE).values()
        for name, rest in stage.instructions
        if name == "COPY" and not rest.startswith("--from")
        for word in rest.split()[:-1]
    ]
    assert not [path for path in copied if not any(file == path or file.startswith(f"{path}/") for file in sent)]
    assert not [file for file in sent if not any(file == path or file.startswith(f"{path}/") for path in copied)]


def test_the_emulated_fabric_connects_to_where_the_controller_listens_and_nothing_else_can() -> None:
    config = load(DEPLOY / "signalbox.toml")
    document = yaml.safe_load((ROOT / EMULATED).read_text())
    of = document["services"]
    assert of["controller"]["networks"]["openflow"]["ipv4_address"] == config.openflow.host
    assert f"tcp:{config.openflow.host}:{config.openflow.port}" in of["fabric"]["command"]
    assert document["networks"]["openflow"]["internal"] is True
    assert {name for name, service in of.items() if "openflow" in service["networks"]} == {"fabric", "controller"}


def test_the_api_of_the_emulated_fabric_is_a_socket_that_only_three_containers_have() -> None:
    (listen,) = load(DEPLOY / "signalbox.toml").api.listen
    having = {name for name, service in services(EMULATED).items() if "api-socket:/run/signalbox" in service["volumes"]}
    assert having == {"controller", "fabric", "web"}
    assert listen == "unix:/run/signalbox/api.sock"
    assert listen in services(EMULATED)["fabric"]["command"]
    assert f"SIGNALBOX_ADDRESS={listen} " in DOCKERFILE
    assert services(EMULATED)["web"]["user"] == services(EMULATED)["controller"]["user"]


def test_grafana_finds_its_dashboards_and_prometheus() -> None:
    grafana = services(EMULATED)["grafana"]
    targets = {volume.split(":")[1] for volume in grafana["volumes"]}
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/signalbox.yml").read_text())["providers"]
    assert provider["options"]["path"] in targets
    assert str(Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]).parent) in targets
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"


def test_the_controller_of_a_real_fabric_lets_in_only_who_proves_who_they_are() -> None:
    config = load(DEPLOY / "signalbox-fabric.toml")
    assert config.openflow.tls_files
    assert config.api.tls_files
    assert config.api.tokens
    assert (config.api.socket_role, config.api.insecure) == ("none", False)
    assert config.metrics.port == load(DEPLOY / "signalbox.toml").metrics.port


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/good" else 503)
        self.end_headers()
        self.wfile.write(b"x" * 200_000)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log no requests."""


def test_healthy_is_who_answers_with_200_or_without_a_path_who_listens() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        port = str(server.server_port)
        paths: list[list[str]] = [["/good"], ["/bad"], []]
        statuses = [subprocess.run([DEPLOY / "healthy.sh", port, *path]).returncode for path in paths]
        server.shutdown()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # the socket reserves the port, and does not listen
        refused = subprocess.run(
            [DEPLOY / "healthy.sh", str(silent.getsockname()[1]), "/good"], capture_output=True
        ).returncode
    assert (statuses, refused) == ([0, 1, 0], 1)
