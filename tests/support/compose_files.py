"""The services of the compose files, as a container engine would read them."""

from typing import Any

import yaml

from tests.support.doc_pages import ROOT


def services(file: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, service in yaml.safe_load((ROOT / file).read_text())["services"].items():
        base = service.pop("extends", None)
        made_of = services(base["file"])[base["service"]] if base else {}
        found[name] = {**made_of, **service, "volumes": [*made_of.get("volumes", ()), *service.get("volumes", ())]}
    return found
