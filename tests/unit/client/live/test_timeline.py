"""Timelines of shared links, and how page and report draw them."""

import pytest

from signalbox.live.picture import LIGHT
from signalbox.live.timeline import Lane, Slot, Timeline, timelines
from signalbox.mapping import duration
from signalbox.report.drawing import timeline as drawing
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.web.beside import timeline as chart


def shared(job_id: str, traffic_class: int = 1, turns: int = 0, *slots: tuple[float, float]) -> pb.SharedJob:
    parts = [pb.CirclePart(start=start, length=length) for start, length in slots]
    start = slots[0][0] if slots else None
    return pb.SharedJob(job_id=job_id, traffic_class=traffic_class, turns=turns, slots=parts, start=start)


def plan(*jobs: pb.SharedJob, on: str = "", circles: tuple[str, ...] = ()) -> pb.Plan:
    links = [pb.SharedLinks(links=["x>y", "y>z"], job_ids=on or [job.job_id for job in jobs], average_load=0.9)]
    found = [pb.Circle(period=duration(2.0), job_ids=[*circle]) for circle in circles]
    return pb.Plan(sharing=pb.Sharing(jobs=jobs, links=links, circles=found))


SHORT, LONG, BATCH = shared("a", 1, 2, (0.4, 0.25)), shared("b", 1, 1, (0.1, 0.2), (0.8, 0.3)), shared("c", 2)


def test_slots_repeat_within_the_period_and_are_divided_at_its_end() -> None:
    (found,) = timelines(plan(SHORT, LONG, BATCH, on="abcd", circles=("ab",)))
    assert (found.links, found.period_s, found.average_load) == (("x>y", "y>z"), 2.0, 0.9)
    assert [(lane.job_id, lane.traffic_class) for lane in found.lanes] == [("b", 1), ("a", 1), ("d", 1), ("c", 2)]
    slots = {lane.job_id: [pytest.approx(tuple(slot)) for slot in lane.slots] for lane in found.lanes}
    assert slots["a"] == [(0.0, 0.3), (0.8, 1.3), (1.8, 2.0)]
    assert slots["b"] == [(0.0, 0.2), (0.2, 0.6), (1.6, 2.0)]
    assert slots["c"] == slots["d"] == []


def test_a_job_of_another_circle_sends_at_any_time() -> None:
    (found,) = timelines(plan(SHORT, LONG, shared("c", 1, 1, (0.0, 0.5)), circles=("c", "ab")))
    assert [lane.job_id for lane in found.lanes if not lane.slots] == ["c"]


def test_links_without_slots_are_drawn_only_for_their_classes() -> None:
    (found,) = timelines(plan(shared("a"), BATCH))
    assert (found.period_s, [lane.slots for lane in found.lanes]) == (0.0, [(), ()])
    assert timelines(plan(shared("a"), shared("b"))) == []
    assert timelines(plan(SHORT, shared("b"), circles=("ax",))) == [], "a lone slot"
    assert timelines(None) == timelines(pb.Plan()) == []


FOUND = Timeline(("x>y",), 0.9, 2.0, (Lane("a", 1, (Slot(0.0, 0.5), Slot(1.5, 2.0))), Lane("<b>", 2, ())))


def test_a_report_has_a_lane_per_job() -> None:
    drawn = drawing(FOUND)
    bars = [rect for rect in drawn.iter("rect") if "bar" in rect.get("class", "")]
    assert [(float(bar.get("x", "")), float(bar.get("width", ""))) for bar in bars] == [(210, 200), (810, 200)]
    assert [text.text for text in drawn.iter("text")][:3] == ["a, class 1", "<b>, class 2", "at any time"]
    assert [text.text for text in drawn.iter("text")][3:] == ["0 s", "0.5 s", "1 s", "1.5 s", "2 s"]


def test_the_page_has_the_same_lanes_as_stacked_bars() -> None:
    options = chart(FOUND, LIGHT)
    first, second = zip(*(each["data"] for each in options["series"]), strict=True)
    assert [part["value"] for part in first] == [0.0, 0.5, 1.0, 0.5]
    assert [part if part == "-" else part["value"] for part in second] == [0, 2.0, "-", "-"]
    assert second[1]["label"]["formatter"] == "at any time"
    assert options["yAxis"]["data"] == ["a, class 1", "<b>, class 2"]
