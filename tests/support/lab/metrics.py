"""Metrics of a lab's controller."""

from __future__ import annotations

import re
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from mininet_topos.controller_process import ControllerProcess


def metric(controller: ControllerProcess, name: str, **labels: str) -> list[float]:
    """Return the values of the series that have this name, and at least these labels."""
    address = re.findall(r"metrics=(\S+)", controller.log.read_text())[-1]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = (sample for family in families for sample in family.samples)
    return [sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()]
