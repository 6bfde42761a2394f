"""Decisions of the demo that need no fabric."""

from pathlib import Path

import pytest

from controller import config
from mininet_topos.controller_process import ControllerProcess
from mininet_topos.demo.command import SETTINGS
from mininet_topos.demo.parts import DemoError
from mininet_topos.demo.phases import cable_under_load
from signalbox.words import Mode


def test_the_cable_that_carries_most_in_both_directions_is_cut() -> None:
    paths = {
        ("a", "b"): ("leaf1", "spine1", "leaf2"),
        ("b", "c"): ("leaf2", "spine1", "leaf3"),
        ("c", "d"): ("leaf3", "spine2", "leaf4"),
        ("d", "a"): ("leaf4", "spine3", "leaf1"),
        ("x", "y"): (),
    }
    assert cable_under_load(paths) == ("leaf2", "spine1")
    with pytest.raises(DemoError, match="no flow is pinned"):
        cable_under_load({("a", "b"): ()})


def test_the_demo_s_configuration_is_valid(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path, 12345, SETTINGS)
    (tmp_path / "signalbox.toml").write_text(controller.config())
    loaded = config.load(tmp_path / "signalbox.toml")
    assert loaded.planning.mode is Mode.ECMP
    assert loaded.openflow.port == 12345
    assert loaded.fabric.link_bps == loaded.fabric.host_link_bps == 5e6
    assert loaded.api.listen == (controller.address,)
