"""Charts beside the fabric: loads of a switch's cables, slowdowns of plans, traffic of a job, slots on a link."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from signalbox.live.jobs import Job, PairDemand, busiest_pairs
from signalbox.live.picture import Cable, Condition, Paper, Picture
from signalbox.live.shown import NAME_CHARS, rate, short
from signalbox.live.state import Slowdowns
from signalbox.live.timeline import Lane, Timeline
from signalbox.web.charts import Options, common, plain, value_axis

MOST_POINTS = 600
MOST_PAIRS = 20
SHORT_NAME = 20
"""Largest number of characters of the name of a lane."""
MOST_OF_SWITCH = 512
"""Largest number of a switch's cables that are drawn."""


def cables_of(picture: Picture, dpid: int, paper: Paper) -> Options:
    """Return a bar chart of the loads of a switch's cables, with a bar per direction.

    For servers that only circuits connect, the chart has a bar per leaving and per arriving circuit."""
    shown = picture.at(dpid)[:MOST_OF_SWITCH]
    node = picture.nodes[dpid]
    circuits = picture.without_tiers
    names = ("to others", "from others") if circuits else ("towards the higher tier", "towards the lower tier")

    def bars(found: Iterable[float | None]) -> list[Any]:
        return ["-" if load is None else round(load * 100) for load in found]

    def loads(cable: Cable) -> tuple[float | None, float | None]:
        if cable.one_way and dpid == cable.ends[1]:
            return None, cable.up_load
        return cable.up_load, cable.down_load

    def other(cable: Cable) -> str:
        end = picture.nodes[cable.ends[0] if cable.ends[1] == dpid else cable.ends[1]].title
        return end if cable.condition is Condition.UP else f"{end} ({cable.condition.value})"

    title = f"{'Circuits' if circuits else 'Cables'} of {node.title}, load in %"
    return {
        **_common_options(title, paper),
        "legend": {"top": 0, "right": 0, "textStyle": {"color": paper.text}},
        "grid": {"left": 40, "right": 10, "top": 40, "bottom": 70},
        "xAxis": _categories([other(cable) for cable in shown], 10, paper),
        "yAxis": {**value_axis(paper), "min": 0, "max": 100},
        "series": [
            _bars("up", names[0], bars(loads(cable)[0] for cable in shown), paper),
            _bars("down", names[1], bars(loads(cable)[1] for cable in shown), paper, dashed=True),
        ],
    }


def _common_options(title: str, paper: Paper, **style: object) -> Options:
    return {
        **common(paper),
        "title": {
            "left": 0,
            "text": title,
            "textStyle": {"color": paper.text, "fontSize": 13, **style},
        },
        "legend": {"top": 26, "left": 0, "textStyle": {"color": paper.text}},
        "yAxis": value_axis(paper),
    }


def _categories(names: Sequence[str], size: int, paper: Paper) -> Options:
    label = {"color": paper.text, "rotate": 45, "fontSize": size, "width": 120, "overflow": "truncate"}
    return {"type": "category", "data": names, "axisLabel": label}


def _bars(key: str, name: str, data: Sequence[Any], paper: Paper, dashed: bool = False) -> Options:
    style = {"color": paper.scale[3]}
    if dashed:
        style = {"color": paper.scale[1], "borderColor": paper.text, "borderType": "dashed"}
    return {"id": key, "name": name, "type": "bar", "data": data, "itemStyle": style}


def slowdowns(found: Sequence[Slowdowns], paper: Paper) -> Options:
    """Return a line chart over time: worst slowdown of each plan, worst slowdown under ECMP, and bound of each plan."""
    shown = list(found)[-MOST_POINTS:]

    def line(name: str, values: Iterable[float | None], kind: str, ink: str) -> Options:
        points = [[round(each.unix_s * 1000), value] for each, value in zip(shown, values, strict=True)]
        return {
            "id": name,
            "name": name,
            "type": "line",
            "step": "end",
            "symbolSize": 5,
            "data": points,
            "lineStyle": {"type": kind, "color": ink, "width": 2},
            "itemStyle": {"color": ink},
        }

    return {
        **_common_options("Worst slowdown (2: a job communicates in at most twice its ideal time)", paper),
        "grid": {"left": 45, "right": 15, "top": 62, "bottom": 25},
        "xAxis": {"type": "time", "axisLabel": {"color": paper.text}},
        "yAxis": {**value_axis(paper), "scale": True},
        "series": [
            line("ECMP", (each.ecmp for each in shown), "dotted", paper.down),
            line("plan", (each.plan for each in shown), "solid", paper.text),
            line("bound", (each.bound for each in shown), "dashed", paper.faint),
        ],
    }


def demand(job: Job, paper: Paper) -> Options:
    """Return a bar chart of the pairs of addresses that send most: announced and counted bytes per iteration.

    If the job reports no iterations, a pair has no counted bytes, and its label has the measured rate."""
    pairs = busiest_pairs(job, MOST_PAIRS)
    announced = [round(pair.declared_bytes / 1e6, 3) for pair in pairs]
    counted = [round(pair.measured_bytes / 1e6, 3) if pair.HasField("measured_bytes") else "-" for pair in pairs]
    return {
        **_common_options(_title(job), paper, width=480, overflow="truncate"),
        "grid": {"left": 85, "right": 15, "top": 62, "bottom": 95},
        "xAxis": _categories([_name(pair) for pair in pairs], 9, paper),
        "series": [
            _bars("declared", "announced", announced, paper),
            _bars("measured", "counted", counted, paper, dashed=True),
        ],
    }


def _name(pair: PairDemand) -> str:
    counted = "" if pair.HasField("measured_bytes") else f"\n{rate(pair.measured_bps)}"
    return f"{short(pair.src, NAME_CHARS)} > {short(pair.dst, NAME_CHARS)}{counted}"


def _title(job: Job) -> str:
    left = len(job.demand.pairs) - MOST_PAIRS
    return f"{short(job.spec.job_id, NAME_CHARS)}: MB per iteration, announced and counted" + (
        f" ({MOST_PAIRS} of {len(job.demand.pairs)} pairs)" if left > 0 else ""
    )


def timeline(found: Timeline, paper: Paper) -> Options:
    """Return a bar per job of a link, with its slots in one common period; a dashed bar for any time."""
    most = max(2 * len(lane.slots) or 2 for lane in found.lanes)
    period_s = found.period_s or 1.0
    lanes = [_segments(lane, period_s, paper) for lane in found.lanes]
    series = [
        {
            "id": str(number),
            "type": "bar",
            "stack": "slots",
            "barWidth": "70%",
            "data": [lane[number] if number < len(lane) else "-" for lane in lanes],
        }
        for number in range(most)
    ]
    names = [plain(short(lane.title, SHORT_NAME)) for lane in found.lanes]
    axis = {"type": "category", "inverse": True, "data": names, "axisLabel": {"color": paper.text}}
    shown = {"show": bool(found.period_s), "color": paper.text, "formatter": "{value} s", "showMaxLabel": False}
    return {
        **_common_options(short(found.title, NAME_CHARS), paper, fontSize=12),
        "grid": {"left": 140, "right": 30, "top": 30, "bottom": 25},
        "xAxis": {**value_axis(paper), "min": 0, "max": period_s, "axisLabel": shown},
        "yAxis": axis,
        "tooltip": {"show": False},
        "series": series,
    }


def _segments(lane: Lane, period_s: float, paper: Paper) -> list[Options]:
    """Return the stacked parts of a lane: gaps and slots in turn."""
    if not lane.slots:
        style = {"color": "transparent", "borderColor": paper.text, "borderType": "dashed"}
        label = {"show": True, "color": paper.text, "formatter": "at any time"}
        return [{"value": 0}, {"value": period_s, "itemStyle": style, "label": label}]
    found: list[Options] = []
    ink, before_s = paper.scale[max(1, 4 - lane.traffic_class)], 0.0
    for start_s, end_s in lane.slots:
        found.append({"value": start_s - before_s, "itemStyle": {"color": "transparent"}})
        found.append({"value": end_s - start_s, "itemStyle": {"color": ink}})
        before_s = end_s
    return found
