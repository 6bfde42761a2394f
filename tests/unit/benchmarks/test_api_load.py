"""The benchmark replaces the controller's connection to switches, and must keep its signature."""

from __future__ import annotations

import inspect

from benchmarks.api_load.controller import Switches
from controller.serving import serve


def test_the_switches_of_the_benchmark_are_called_as_run_hub_is() -> None:
    replaced = inspect.signature(serve.run_hub).parameters.values()
    replacement = [*inspect.signature(Switches.__call__).parameters.values()][1:]
    assert [(one.name, one.kind, one.default) for one in replacement] == [
        (one.name, one.kind, one.default) for one in replaced
    ]
