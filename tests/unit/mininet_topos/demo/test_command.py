from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from mininet_topos.demo import command
from mininet_topos.lab.record import LabError


def test_a_demo_beside_a_running_one_leaves_its_results_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise LabError("a lab with prefix '' is running: process 7")

    def no_process(scratch: Path, **_: object) -> SimpleNamespace:
        return SimpleNamespace(log=scratch / "controller.log", running=nullcontext, target="", address="")

    monkeypatch.setattr(command, "Lab", refused)
    monkeypatch.setattr(command, "ControllerProcess", no_process)
    (tmp_path / "raw").mkdir()
    written = [tmp_path / "raw" / "rank-0.jsonl", tmp_path / "report.json"]
    for file in written:
        file.write_text("{}")

    with pytest.raises(typer.Exit):
        command.run(tmp_path)

    assert [file.read_text() for file in written] == ["{}", "{}"]
