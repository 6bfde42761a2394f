"""The content of the Debian package, without building it; ``tests/lab/test_deb.py`` installs it."""

import re

from controller.config import load
from controller.serving import exposure
from tests.support.doc_pages import PAGES, ROOT

DEBIAN = ROOT / "deploy/debian"
VERSION = (ROOT / "client/VERSION").read_text().strip()


def pins(file: str) -> dict[str, str]:
    text = (ROOT / "requirements" / file).read_text()
    return {part.partition("==")[0]: part.strip() for part in re.split(r"\n(?=\w)", text)}


def test_its_python_packages_are_some_of_those_that_are_tested() -> None:
    assert pins("deb.txt").items() <= pins("lock.txt").items()
    assert {"ryu", "ortools", "grpcio", "nicegui", "textual"} <= pins("deb.txt").keys()
    assert not {"pytest", "mypy", "kopf", "os-ken"} & pins("deb.txt").keys()


def test_the_changelog_and_the_guide_have_the_version() -> None:
    assert (DEBIAN / "changelog").read_text().startswith(f"signalbox-controller ({VERSION}) ")
    guide = next(page for page in PAGES if page.name == "docs/how-to/install.md")
    assert {*re.findall(r"signalbox-controller_(\S+)_amd64\.deb", guide.text)} == {VERSION}


def test_its_configuration_lets_no_other_machine_in() -> None:
    who = exposure.who_may(load(DEBIAN / "signalbox.toml"))
    assert not [line for line in who if "this machine" not in line and "unix:" not in line]
