"""The distributions: the content of their wheels, and their requirements."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from email.parser import Parser
from itertools import chain
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from signalbox.distributions import CLIENT, COMMANDS, CONTROLLER, OFFLINE
from tests.support.doc_pages import ROOT
from tests.support.syntax import statements

PROJECTS: dict[str, Any] = {
    name: tomllib.loads((ROOT / file).read_text())
    for name, file in (
        (CLIENT, "client/pyproject.toml"),
        (CONTROLLER, "pyproject.toml"),
        (OFFLINE, "offline/pyproject.toml"),
    )
}
FOLDERS = {CLIENT: ("client/signalbox",), CONTROLLER: ("controller",), OFFLINE: ("offline", "mininet_topos")}
NO_CODE = {"offline/pyproject.toml", "controller/store/etcd_v3/etcd.proto"}
"""Files in ``FOLDERS`` that no wheel contains."""
DISTRIBUTIONS = {
    "google.protobuf": "protobuf",
    "google.rpc": "grpcio-status",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "grpc_status": "grpcio-status",
    "pydantic_core": "pydantic",
    "yaml": "pyyaml",
    "signalbox": CLIENT,
    "controller": CONTROLLER,
    "mininet_topos": OFFLINE,
    "offline": OFFLINE,
}
"""Distribution by imported module, where the names differ or the module is part of another distribution."""
OF_USERS = {"torch"}
"""Distributions that only user programs install; ``signalbox.torch`` is for programs with PyTorch."""
OPTIONAL = {"os-ken", "mininet", "matplotlib", "torch", "mpi4py"}
"""Imported distributions that are not required: those of the emulated fabric, and alternatives to each other."""


def named(text: str) -> str:
    return re.sub(r"[-_.]+", "-", Requirement(text).name).lower()


def needed(distribution: str) -> list[Requirement]:
    return [Requirement(text) for text in PROJECTS[distribution]["project"]["dependencies"]]


def imported(distribution: str) -> set[str]:
    files = chain.from_iterable((ROOT / folder).rglob("*.py") for folder in FOLDERS[distribution])
    return {distribution_of(name) for file in files for name in imports(ast.parse(file.read_bytes()))} - {
        distribution,
        "",
    }


def imports(tree: ast.Module) -> Iterator[str]:
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def distribution_of(module: str) -> str:
    """Return the distribution of a module, or an empty text for the standard library."""
    first, *others = module.split(".")
    if first in sys.stdlib_module_names:
        return ""
    name = f"{first}.{others[0]}" if first == "google" else first
    return DISTRIBUTIONS.get(name, name.replace("_", "-"))


def extras(distribution: str) -> list[str]:
    return [*chain.from_iterable(PROJECTS[distribution]["project"]["optional-dependencies"].values())]


def test_each_needs_what_it_imports_and_no_more() -> None:
    assert {each.name for each in needed(CLIENT)} | {*map(named, extras(CLIENT))} == imported(CLIENT) - OF_USERS
    assert {each.name for each in needed(CONTROLLER)} - {"dnspython"} == imported(CONTROLLER) - OPTIONAL
    assert {each.name for each in needed(OFFLINE)} == imported(OFFLINE) - OPTIONAL


def test_generated_code_gets_no_older_library_than_it_was_made_for() -> None:
    code = "".join(path.read_text() for path in sorted((ROOT / "client/signalbox/v1").glob("*_pb2*.py")))
    for name, made_for in (
        ("protobuf", r"Protobuf Python Version: (.*)"),
        ("grpcio", r"GRPC_GENERATED_VERSION = '(.*)'"),
    ):
        (limits,) = (each.specifier for each in needed(CLIENT) if each.name == name)
        (lowest,) = (Version(limit.version) for limit in limits if limit.operator == ">=")
        assert lowest >= Version(re.findall(made_for, code)[0])


def test_nothing_is_installed_that_is_called_signalbox() -> None:
    """The name belongs to another project on the public index."""
    texts = [project["project"]["dependencies"] for project in PROJECTS.values()]
    texts += [project["build-system"]["requires"] for project in PROJECTS.values()]
    texts += [extras(CLIENT), extras(CONTROLLER)]
    locked = (path.read_text() for path in (ROOT / "requirements").glob("*.txt"))
    texts += [re.findall(r"^[\w.-]+", text, re.MULTILINE) for text in locked]
    assert "signalbox" not in {named(text) for text in chain.from_iterable(texts)}
    assert {project["project"]["name"] for project in PROJECTS.values()} == PROJECTS.keys()


def test_no_document_or_script_says_to_install_it() -> None:
    files = [ROOT / "README.md", ROOT / "Makefile", ROOT / "deploy/Dockerfile"]
    files += chain.from_iterable(
        (ROOT / folder).rglob(f"*.{end}") for folder, end in (("docs", "md"), ("scripts", "sh"))
    )
    bare = re.compile(r"pip3? install\b[^`\n]*?\ssignalbox(?![\w/-])")
    assert [file.name for file in files if bare.search(file.read_text())] == []
    assert bare.search("pip install --find-links dist signalbox[os-ken]")


# ---- wheels


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([ROOT / "scripts/wheels.sh", folder, *PROJECTS], check=True)
    return {name: next(folder.glob(f"{name.replace('-', '_')}-*.whl")) for name in PROJECTS}


def files_in(wheel: Path) -> set[str]:
    return {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}


def information(wheel: Path, file: str) -> str:
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(f".dist-info/{file}"))
        return archive.read(name).decode()


def test_a_wheel_has_its_packages_and_nothing_else(wheels: dict[str, Path]) -> None:
    for name, wheel in wheels.items():
        folders = [folder.removeprefix("client/") for folder in FOLDERS[name]]
        assert {file.partition("/")[0] for file in files_in(wheel)} == set(folders)
        there = {f"{path.relative_to(ROOT)}" for folder in FOLDERS[name] for path in (ROOT / folder).rglob("*.*")}
        expected = {path.removeprefix("client/") for path in there - NO_CODE if not path.endswith(".pyc")}
        assert files_in(wheel) == {path for path in expected if not (ROOT / path).is_dir()}
        assert information(wheel, "licenses/LICENSE") == (ROOT / "LICENSE").read_text()


def test_one_command_and_its_parts_are_entry_points(wheels: dict[str, Path]) -> None:
    points = {name: configparser.ConfigParser() for name in wheels}
    for name, wheel in wheels.items():
        points[name].read_string(information(wheel, "entry_points.txt"))
    assert {name: each.sections() for name, each in points.items()} == {
        CLIENT: ["console_scripts"],
        CONTROLLER: [COMMANDS],
        OFFLINE: [COMMANDS],
    }
    assert points[CLIENT]["console_scripts"].keys() == {"signalbox"}
    assert points[CONTROLLER][COMMANDS].keys() == {"controller"}
    assert points[OFFLINE][COMMANDS].keys() == {"offline", "lab"}


def test_all_have_one_version_and_need_the_others_of_it(wheels: dict[str, Path]) -> None:
    version = (ROOT / "client/VERSION").read_text().strip()
    metadata = {name: Parser().parsestr(information(wheel, "METADATA")) for name, wheel in wheels.items()}
    assert {each["Version"] for each in metadata.values()} == {version}
    needs = {name: each.get_all("Requires-Dist", ()) for name, each in metadata.items()}
    assert f"{CLIENT}=={version}" in needs[CONTROLLER]
    assert {f"{CLIENT}=={version}", f"{CONTROLLER}=={version}"} <= {*needs[OFFLINE]}
    files = ("docker-compose.yml", "docker-compose.fabric.yml", "deploy/kubernetes/signalbox.yaml")
    images = re.findall(r"image: signalbox\S*", "".join((ROOT / file).read_text() for file in files))
    assert images
    assert {image.partition(":")[2].partition(":")[2] for image in images} == {version}


def test_the_same_sources_give_the_same_wheel(wheels: dict[str, Path], tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts/wheels.sh", tmp_path, CLIENT], check=True)
    assert (tmp_path / wheels[CLIENT].name).read_bytes() == wheels[CLIENT].read_bytes()
