"""Results, pictures and wirings that a controller uses instead of its own, in the demo of rewiring."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from controller.circuits.questions import FindWiring, FoundWiring
from controller.circuits.wiring.circuits import Wiring, circulant
from controller.fabric.topology import Dpid
from controller.planning.problem import PlanLimits
from mininet_topos.rewiring.answers import accept, answer, give
from mininet_topos.rewiring.command import targets
from mininet_topos.rewiring.report import (
    CHOSEN,
    COLOURS,
    RANDOM,
    SWITCH,
    Panel,
    Row,
    as_modelled,
    draw,
    markdown,
    places,
)
from signalbox.jobs.spec import JobId, JobSpec


def row(fabric: str, measured_s: float, modelled_s: float | None = 2.0) -> Row:
    return Row(fabric, "hybrid", 4, modelled_s, measured_s, (measured_s, measured_s))


@pytest.mark.parametrize(("measured_s", "met"), [(1.79, False), (1.81, True), (2.0, True), (2.19, True), (2.21, False)])
def test_what_is_measured_should_be_within_a_tenth_of_what_is_modelled(measured_s: float, met: bool) -> None:
    assert as_modelled(row(CHOSEN, measured_s)).met is met
    assert as_modelled(row(CHOSEN, measured_s, None))[1:] == ("-", "0.90 to 1.10", None), "the model has no value"


def test_the_chosen_wiring_should_be_faster_than_both_others() -> None:
    judged = targets([row(CHOSEN, 2.0), row(RANDOM, 5.0, 5.1), row(SWITCH, 1.9)])
    assert [target.met for target in judged] == [True, True, True, True, False]
    assert judged[3].figure == "2.50"


def test_the_report_has_every_fabric_and_every_target() -> None:
    rows = [row(CHOSEN, 2.1), row(SWITCH, 6.3, 6.0)]
    text = markdown("title", rows, [as_modelled(each) for each in rows], ["a paragraph"])
    lines = text.splitlines()
    assert lines[:3] == ["# title", "", "a paragraph"]
    assert "| chosen wiring | hybrid | 4 | 2.00 | 2.10 | 1.050 | 1.00 | 2.10 2.10 |" in lines
    assert "| one switch of the same cost | hybrid | 4 | 6.00 | 6.30 | 1.050 | 3.00 | 6.30 6.30 |" in lines
    assert "| chosen wiring: measured / modelled | 1.050 | 0.90 to 1.10 | met |" in lines


def colours(path: Path) -> set[str]:
    pixels = (image.imread(path)[..., :3] * 255).round().astype(int)
    return {f"#{number:06x}" for number in np.unique(pixels @ [1 << 16, 1 << 8, 1]).tolist()}


def test_servers_are_on_a_circle_clockwise_from_the_top() -> None:
    assert [(round(x), round(y)) for x, y in places(4)] == [(0, 1), (1, 0), (0, -1), (-1, 0)]


def test_each_optical_switch_has_a_colour_and_dark_interfaces_nothing(tmp_path: Path) -> None:
    dark = Wiring(3, ((1, None, 0), (None, None, None)))
    draw(tmp_path / "wirings.png", [Panel("before", "1 s", dark), Panel("after", "2 s", circulant(5, [1, 2]))])
    found = colours(tmp_path / "wirings.png")
    assert set(COLOURS[:2]) <= found  # in the keys; the background shows through arrows
    assert not set(COLOURS[2:]) & found


ALL_TO_ALL = {"algorithm": "all_to_all", "groups": ["all"], "bytes_per_iteration": 8_000_000}


def asked(job_id: str) -> FindWiring:
    """Return the request of a job that is better on a switch: servers with two circuits would forward most bytes."""
    endpoints, groups = [f"10.0.{n}.1" for n in range(1, 13)], [{"name": "all", "ranks": range(12)}]
    spec = JobSpec.parse({"job_id": job_id, "endpoints": endpoints, "groups": groups, "collectives": [ALL_TO_ALL]})
    servers = tuple(Dpid(number) for number in range(1, 13))
    optical = Dpid(0x101), Dpid(0x102)
    return FindWiring(JobId(job_id), "uid", spec, servers, optical, 2e6, PlanLimits(time_limit_s=0.5, ecmp_draws=0))


def test_a_wiring_that_is_given_is_the_answer_for_this_job_alone(tmp_path: Path) -> None:
    question, wiring = asked("given"), circulant(12, [3, 4])
    give(tmp_path, "given", wiring, "hybrid", question.spec, 7.5)
    assert answer(tmp_path, question) == FoundWiring("hybrid", question.spec, wiring.peers, 7.5, 7.5, 7.5)
    other = answer(tmp_path, asked("other"))
    assert isinstance(other, FoundWiring)
    assert other.peers != wiring.peers


def test_a_job_that_is_refused_can_be_accepted(tmp_path: Path) -> None:
    refused = answer(tmp_path, asked("job"))
    assert isinstance(refused, FoundWiring)
    assert "is better" in refused.refused
    accept(tmp_path, "job")
    accepted = answer(tmp_path, asked("job"))
    assert isinstance(accepted, FoundWiring)
    assert (accepted.refused, accepted.peers) == ("", refused.peers)
