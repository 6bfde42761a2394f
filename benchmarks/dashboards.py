"""Every panel of the Grafana dashboards, drawn from the answers of a real Prometheus while jobs train.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks dashboards [--out FOLDER] [--faults]

The demo's fabric and its rings. Out: a picture per dashboard, and which panels are empty; ends with 1 when one is that
should not be. Grafana itself is not run: the pictures show what its panels ask for and get, not how it draws them.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, Formatter, PercentFormatter, ScalarFormatter, StrMethodFormatter

from benchmarks.measures import report
from benchmarks.monitoring import Prometheus, dashboards, filled_in, prometheus
from mininet_topos.controller_process import reserve_port
from mininet_topos.demo.parts import Training
from mininet_topos.demo.phases import ELEMENTS, HOSTS_PER_LEAF, LEAVES, RATE_BPS, SPINES, ring_jobs
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import running_fabric
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.queues import large_socket_buffers
from signalbox.client import Client
from signalbox.commands.output import AsJson

JOB = "ring1"
TRAIN_S = 90.0
CUT_S = 15.0
"""How long a cable is unplugged."""
COLUMNS = 24
"""Of a dashboard."""
WIDTH = 10.0
HEAD, TITLE, LINE = 0.5, 0.35, 0.2
"""Inches: the width of a sheet, and the heights of its head, of a panel's title and of a line of text."""
MOST_LINES, MOST_ROWS, MOST_NUMBERS = 8, 12, 4
UNITS: Mapping[str, Callable[[], Formatter]] = {
    "percentunit": lambda: PercentFormatter(1.0),
    "bps": lambda: EngFormatter("bit/s"),
    "bytes": lambda: EngFormatter("B"),
    "s": lambda: EngFormatter("s"),
    "pps": lambda: StrMethodFormatter("{x:g}/s"),
    "reqps": lambda: StrMethodFormatter("{x:g}/s"),
}
"""How values are written, by Grafana's name of their unit; the others are plain numbers."""

RIGHTLY_EMPTY: Mapping[str, str] = {
    "controller: Certificates": "no listener has TLS",
    "fabric: Unannounced traffic": "jobs send what they announced",
    "fabric: Refused by ports": "no port has sent what is refused",
}
WITHOUT_FAULTS: Mapping[str, str] = {
    "fabric: Down": "everything is there",
    "fabric: Drained": "nothing is drained",
}


@dataclass(frozen=True)
class Drawn:
    """``answers``: per target its series, of a range or of now."""

    title: str
    kind: str
    unit: str
    at: Mapping[str, int]
    answers: Sequence[Sequence[Mapping[str, Any]]]
    legends: Sequence[str]

    @property
    def empty(self) -> bool:
        return not any(self.answers)

    @property
    def has_axes(self) -> bool:
        return not self.empty and (self.kind == "timeseries" or self.is_matrix)

    @property
    def is_matrix(self) -> bool:
        first = self.answers[0] if self.kind == "table" else ()
        return any("src" in series["metric"] and "link" not in series["metric"] for series in first)


def asked(source: Prometheus, panel: Mapping[str, Any], since: float) -> Drawn:
    """What the panel gets, from ``since`` in seconds of Unix time until now."""
    answers = []
    for target in panel["targets"]:
        expression = filled_in(target["expr"], JOB)
        if target.get("instant"):
            answers.append(source.query(expression))
        else:
            answers.append(source.query_range(expression, since, time.time()))
    unit = panel["fieldConfig"]["defaults"].get("unit", "")
    legends = [target.get("legendFormat", "") for target in panel["targets"]]
    return Drawn(panel["title"].removesuffix(" $fabric"), panel["type"], unit, panel["gridPos"], answers, legends)


# ---- pictures


def sheet(name: str, panels: Sequence[Drawn]) -> Figure:
    """All panels in the rows that they are in, each row as high as what there is in it needs."""
    rows: dict[int, list[Drawn]] = {}
    for panel in panels:
        rows.setdefault(panel.at["y"], []).append(panel)
    heights = {y: max(TITLE + _inches(panel) + _below(panel) for panel in row) for y, row in sorted(rows.items())}
    whole, top = HEAD + sum(heights.values()), HEAD
    figure = Figure(figsize=(WIDTH, whole), dpi=100)
    figure.suptitle(f"Signalbox: {name}", x=0.01, ha="left", fontsize=15, y=1 - 0.1 / whole, va="top")
    for y, height in heights.items():
        for panel in rows[y]:
            margin = 0.06 if panel.has_axes else 0.02
            left, width, tall = panel.at["x"] / COLUMNS + margin, panel.at["w"] / COLUMNS - 0.08, _inches(panel)
            _draw(figure.add_axes((left, 1 - (top + TITLE + tall) / whole, width, tall / whole)), panel)
        top += height
    return figure


def _inches(panel: Drawn) -> float:
    """Height of what is drawn."""
    if panel.empty:
        return LINE
    if panel.kind == "timeseries":
        return 1.5
    if panel.kind == "nodeGraph":
        return 3.0
    if panel.kind == "stat":
        return LINE * min(sum(map(len, panel.answers)), MOST_NUMBERS) + 0.1
    if panel.is_matrix:
        return 1.5 * LINE * len({series["metric"]["src"] for series in panel.answers[0]})
    return 0.15 * min(len(panel.answers[0]), MOST_ROWS)


def _below(panel: Drawn) -> float:
    """Height of labels of axes, and of a legend, and of what is left free."""
    if panel.kind == "timeseries" and not panel.empty:
        lines = min(sum(map(len, panel.answers)), MOST_LINES)
        return 0.6 + 0.16 * math.ceil(lines / 2)
    return 0.55 if panel.is_matrix else 0.25


def _draw(axes: Axes, panel: Drawn) -> None:
    axes.set_title(
        panel.title, fontsize=10, loc="left", x=-0.1 if panel.kind == "timeseries" and not panel.empty else 0
    )
    axes.tick_params(labelsize=8)
    if panel.empty:
        axes.text(0, 0.5, "nothing", va="center", color="grey", fontsize=9)
        axes.set_axis_off()
    elif panel.kind == "timeseries":
        _lines(axes, panel)
    elif panel.kind == "stat":
        _numbers(axes, panel)
    elif panel.kind == "nodeGraph":
        _graph(axes, panel)
    elif panel.is_matrix:
        _matrix(axes, panel)
    else:
        _rows(axes, panel)


def _named(series: Mapping[str, Any], legend: str) -> str:
    for label, value in series["metric"].items():
        legend = legend.replace(f"{{{{{label}}}}}", value)
    return legend or ", ".join(series["metric"].values())


def _lines(axes: Axes, panel: Drawn) -> None:
    lines = [
        (_named(series, legend), [(float(at), float(value)) for at, value in series["values"]])
        for of_target, legend in zip(panel.answers, panel.legends, strict=True)
        for series in of_target
    ]
    last = max(at for _, points in lines for at, _ in points)
    for name, points in lines[:MOST_LINES]:
        axes.plot([at - last for at, _ in points], [value for _, value in points], label=name, linewidth=1)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(UNITS.get(panel.unit, ScalarFormatter)())
    axes.xaxis.set_major_formatter(EngFormatter("s"))
    axes.legend(
        fontsize=7.5,
        loc="upper left",
        bbox_to_anchor=(-0.1, -0.15),
        ncols=2,
        frameon=False,
        columnspacing=1,
        labelspacing=0.2,
    )


def _numbers(axes: Axes, panel: Drawn) -> None:
    shown = [
        f"{_worded(float(series['value'][1]), panel.unit)}  {_named(series, legend)}"
        for of_target, legend in zip(panel.answers, panel.legends, strict=True)
        for series in of_target
    ]
    axes.text(0, 0.5, "\n".join(shown[:MOST_NUMBERS]), fontsize=11 if len(shown) == 1 else 10, va="center")
    axes.set_axis_off()


def _worded(value: float, unit: str) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.1%}" if unit == "percentunit" else f"{value:.3g}"


def _rows(axes: Axes, panel: Drawn) -> None:
    found = sorted(panel.answers[0], key=lambda series: -float(series["value"][1]))
    hidden = {"__name__", "fabric", "instance", "job"}
    lines = [
        f"{_worded(float(series['value'][1]), panel.unit):>8}  "
        + "  ".join(value for label, value in series["metric"].items() if label not in hidden)
        for series in found[:MOST_ROWS]
    ]
    axes.text(0, 1, "\n".join(lines), fontsize=8.5, va="top", family="monospace")
    axes.set_axis_off()


def _matrix(axes: Axes, panel: Drawn) -> None:
    found = {(each["metric"]["src"], each["metric"]["dst"]): float(each["value"][1]) for each in panel.answers[0]}
    sources, ends = (sorted({pair[side] for pair in found}) for side in (0, 1))
    cells = [[found.get((src, dst), math.nan) for dst in ends] for src in sources]
    axes.imshow(cells, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(ends)), ends)
    axes.set_yticks(range(len(sources)), sources)
    for y, row in enumerate(cells):
        for x, value in enumerate(row):
            if not math.isnan(value):
                axes.text(
                    x,
                    y,
                    f"{value:.0%}",
                    ha="center",
                    va="center",
                    fontsize=8.5,
                    color="white" if value < 0.6 else "black",
                )


def _graph(axes: Axes, panel: Drawn) -> None:
    """Switches on a circle: Grafana places them by forces."""
    names = sorted(series["metric"]["switch"] for series in panel.answers[0])
    places = {
        name: (math.cos(2 * math.pi * n / len(names)), math.sin(2 * math.pi * n / len(names)))
        for n, name in enumerate(names)
    }
    for series in panel.answers[1]:
        ends = [places.get(series["metric"][end]) for end in ("src", "dst")]
        if all(ends):
            axes.plot(*zip(*ends, strict=True), linewidth=0.5 + 2 * float(series["value"][1]), color="grey")
    for name, (x, y) in places.items():
        axes.plot(x, y, "o", color="black")
        axes.annotate(name, (x, y), fontsize=9, textcoords="offset points", xytext=(5, 3))
    axes.set_axis_off()


# ---- the scene


@contextmanager
def training(folder: Path) -> Iterator[tuple[Lab, Client, Prometheus]]:
    """The demo's rings train, and Prometheus scrapes the controller."""
    raw = folder / "raw"
    raw.mkdir()
    mbps = RATE_BPS / 1e6
    topo = LeafSpine(LEAVES, SPINES, HOSTS_PER_LEAF, mbps, mbps, prefix="")
    with ExitStack() as stack:
        stack.enter_context(large_socket_buffers())
        settings = {"metrics": {"port": (port := reserve_port())}}
        lab, controller, client = stack.enter_context(running_fabric(topo, folder, mbps, settings))
        source = stack.enter_context(prometheus(folder, f"127.0.0.1:{port}", "1s"))
        jobs = Training(lab, ring_jobs(lab), ELEMENTS, controller.address, folder / "ports", raw)
        jobs.start()
        wait_for(
            lambda: sum(job.pinned for job in client.list_jobs()) == LEAVES * len(jobs.jobs), "every job's pins", 60
        )
        yield lab, client, source
        jobs.stop()


def make_faults(lab: Lab, client: Client) -> None:
    """A cable is cut and plugged in again, a spine is drained, and traffic that no job announced is there."""
    lab.cut("leaf1", "spine1")
    time.sleep(CUT_S)
    lab.plug("leaf1", "spine1")
    client.drain([lab.bridge("spine4")])
    lab.cut("leaf2", "spine2")


def main(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="For the pictures.")] = Path("out/bench/dashboards"),
    faults: Annotated[bool, typer.Option("--faults", help="Cut cables and drain a spine meanwhile.")] = False,
    seconds: Annotated[float, typer.Option(min=60, help="Of training before the panels are asked.")] = TRAIN_S,
    as_json: AsJson = False,
) -> None:
    """Draw every panel of the dashboards from a real Prometheus' answers."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="signalbox-dashboards-") as folder, training(Path(folder)) as scene:
        lab, client, source = scene
        began = time.time()
        time.sleep(seconds / 2)
        if faults:
            make_faults(lab, client)
        time.sleep(max(0.0, began + seconds - time.time()))
        empty = []
        for name, dashboard in dashboards().items():
            panels = [asked(source, each, began) for each in dashboard["panels"] if each["type"] != "row"]
            sheet(name, panels).savefig(out / f"dashboard-{name}.png")
            empty += [f"{name}: {panel.title}" for panel in panels if panel.empty]
    rightly = {**RIGHTLY_EMPTY, **({} if faults else WITHOUT_FAULTS)}
    missed = [name for name in empty if name not in rightly]
    lines = [f"pictures are in {out}"]
    lines += [f"empty: {name}" + (f", rightly: {rightly[name]}" if name in rightly else "") for name in empty]
    report(
        {"empty": empty, "missed": missed},
        out / "dashboards.json",
        lambda: "\n".join([f"pictures are in {out}", *lines]),
        as_json,
    )
    if missed:
        raise typer.Exit(1)
