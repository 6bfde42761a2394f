"""Dashboards from the descriptions in ``pages``: the panels of each row, their queries, variables and annotations.

A description lists the panels of each row. A panel has the name of a function of this module (``KINDS``) with the
panel's title, and the function's other parameters. ``queries`` maps the text for the legend to an expression: PromQL,
or the parameters of ``largest``.

Expressions are written without the labels that select series. ``of_chosen`` adds these labels, so that a dashboard can
show one of several fabrics, or one of several controllers, that an existing Prometheus scrapes.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any, TypeVar

import yaml
from grafana_foundation_sdk.builders import common, dashboard, nodegraph, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    LegendDisplayMode,
    LegendPlacement,
    TableCellHeight,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableHide,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
CHOSEN = 'fabric=~"$fabric",instance=~"$instance"'
"""Label matchers of the chosen fabric and controller. While all fabrics are chosen, the matchers also match series
without the label ``fabric``."""
OF_FABRIC = " $fabric"
"""End of the title of a panel that exists once per fabric."""
TAG = "signalbox"
GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"
WIDTH = 24
UNITS_WITH_DECIMALS = {"percentunit": 1, "none": 2}

_SERIES = re.compile(r"\b((?:\w+:)?signalbox[\w:]*|process_\w+|up)\b(?:\{([^}]*)\})?(?![\w(])")

Panel = stat.Panel | timeseries.Panel | table.Panel | nodegraph.Panel
Made = TypeVar("Made", stat.Panel, timeseries.Panel, table.Panel, nodegraph.Panel)
Queries = Mapping[str, Any]
"""Expressions, by the text that the legend shows for their series."""


def of_chosen(expression: str) -> str:
    """Return the expression with ``CHOSEN`` in the selector of each series."""

    def chosen(match: re.Match[str]) -> str:
        return f"{match[1]}{{{CHOSEN}{',' + match[2] if match[2] else ''}}}"

    return _SERIES.sub(chosen, expression)


def largest(largest: str, most: int = 10, by: str = "link", times: int = 1) -> str:
    """Return an expression for the ``most`` series with the largest maxima in the time range.

    A plain ``topk`` chooses series anew at each time, which draws many more series. ``by``: labels that distinguish the
    series. ``times``: factor of the values."""
    ranged = f"{largest}[$__range]" if " " not in largest else f"({largest})[$__range:]"
    chosen = f"topk({most}, max_over_time({ranged} @ end()))"
    return f"{f'{times} * ' * (times > 1)}{largest} and on (fabric, instance, {by}) {chosen}"


def thresholds(*steps: tuple[float | None, str]) -> dashboard.ThresholdsConfig:
    """Return thresholds from pairs of a value and the colour from that value on.

    The first value is None: its colour is for everything below the second value."""
    return (
        dashboard.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=value, color=color) for value, color in steps])
    )


COLORS = {
    "efficiency": thresholds((None, RED), (0.6, ORANGE), (0.9, GREEN)),
    "none is good": thresholds((None, GREEN), (1, RED)),
    "one is good": thresholds((None, RED), (1, GREEN)),
    "one is notable": thresholds((None, GREEN), (1, BLUE)),
    "load": thresholds((None, "#434e6c"), (0.25, "#7d7c78"), (0.5, "#bcae6c"), (0.8, "#fee838")),
    "plain": thresholds((None, BLUE)),
}


def targets(queries: Queries) -> list[prometheus.Dataquery]:
    """Return the queries, named A, B, C… as in Grafana's editor."""
    return [
        prometheus.Dataquery()
        .expr(of_chosen(of if isinstance(of, str) else largest(**of)))
        .legend_format(legend)
        .ref_id(letter)
        for letter, (legend, of) in zip(ascii_uppercase, queries.items(), strict=False)
    ]


def number(
    title: str, says: str, unit: str, colors: str, queries: Queries, width: int = 4, text: str = "auto"
) -> stat.Panel:
    """Return a panel with the current value in large digits, on the background colour of its threshold."""
    panel = (
        _begun(stat.Panel(), title, says, width, height=5)
        .unit(unit)
        .decimals(UNITS_WITH_DECIMALS.get(unit, 0))
        .thresholds(COLORS[colors])
        .color_mode(BigValueColorMode.BACKGROUND)
        .graph_mode(BigValueGraphMode.NONE)
        .text_mode(BigValueTextMode(text))
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value("–")
    )
    for target in targets(queries):
        panel = panel.with_target(target.instant())
    return panel


def graph(title: str, says: str, unit: str, queries: Queries) -> timeseries.Panel:
    """Return a panel with lines over time, and the latest and the largest value of each in the legend."""
    legend = (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(LegendDisplayMode.TABLE)
        .placement(LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
    )
    panel = (
        _begun(timeseries.Panel(), title, says, WIDTH // 3, height=8).unit(unit).min(0).fill_opacity(5).legend(legend)
    )
    for target in targets(queries):
        panel = panel.with_target(target)
    return panel


def listed(
    title: str,
    says: str,
    unit: str,
    colors: str,
    query: str,
    columns: Sequence[str],
    to_job: bool = False,
    least_first: bool = False,
) -> table.Panel:
    """Return a table of the present series. ``columns``: labels, in order.

    The series with the largest value is first, or with ``least_first`` the series with the smallest value. ``to_job``:
    whether a row leads to the dashboard of its job."""
    shown: dict[str, Any] = {"indexByName": {name: place for place, name in enumerate((*columns, "Value"))}}
    panel = (
        _begun(table.Panel(), title, says, WIDTH // 2, height=9)
        .no_value("–")
        .unit(unit)
        .decimals(UNITS_WITH_DECIMALS.get(unit, 0))
        .thresholds(COLORS[colors])
        .with_target(_instant(query))
        .with_transformation(
            DataTransformerConfig("filterFieldsByName", options={"include": {"names": [*columns, "Value"]}})
        )
        .with_transformation(DataTransformerConfig("organize", options=shown))
        .override_by_name("Value", [DynamicConfigValue("custom.cellOptions", {"type": "color-background"})])
        .sort_by([common.TableSortByFieldState().display_name("Value").desc(not least_first)])
    )
    return panel.data_links([_link_to_job()]) if to_job else panel


def matrix(title: str, says: str, query: str, row: str, column: str) -> table.Panel:
    """Return a table with a row and a column per value of two labels, each cell in the colour of its load.

    There is one table per chosen fabric, because switches of several fabrics may share a name."""
    cells = {"rowField": row, "columnField": column, "valueField": "Value"}
    return (
        _begun(table.Panel(), f"{title}{OF_FABRIC}", says, WIDTH, height=12)
        .no_value("–")
        .repeat("fabric")
        .repeat_direction("v")
        .unit("percentunit")
        .decimals(0)
        .min(0)
        .max(1)
        .thresholds(COLORS["load"])
        .with_target(_instant(query))
        .with_transformation(DataTransformerConfig("groupingToMatrix", options=cells))
        .cell_height(TableCellHeight.SM)
        .override_by_regexp(".*", [DynamicConfigValue("custom.cellOptions", {"type": "color-background"})])
        .override_by_name(f"{row}\\{column}", [DynamicConfigValue("custom.cellOptions", {"type": "auto"})])
    )


def _begun(panel: Made, title: str, says: str, width: int, height: int) -> Made:
    """Return the panel with the settings that all panels share."""
    return panel.title(title).description(says).datasource(DATASOURCE).height(height).span(width)


def nodes(title: str, says: str, of_nodes: str, of_edges: str) -> nodegraph.Panel:
    """Return a graph of switches and links, one per chosen fabric.

    ``of_nodes``: query with the label ``switch``. ``of_edges``: query with the labels ``link``, ``src`` and ``dst``."""
    renamed = {"switch": "id", "link": "id", "src": "source", "dst": "target", "Value": "mainstat"}
    begun = _begun(nodegraph.Panel(), f"{title}{OF_FABRIC}", says, WIDTH, height=16)
    panel = begun.repeat("fabric").repeat_direction("v")
    for letter, query in (("nodes", of_nodes), ("edges", of_edges)):
        panel = panel.with_target(_instant(query).ref_id(letter))
    return panel.with_transformation(DataTransformerConfig("organize", options={"renameByName": renamed}))


def _instant(query: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(of_chosen(query)).format(PromQueryFormat.TABLE).instant().ref_id("A")


# ---- dashboards


KINDS: Mapping[str, Callable[..., Panel]] = {
    "number": number,
    "graph": graph,
    "listed": listed,
    "matrix": matrix,
    "nodes": nodes,
}


def page(file: Path) -> dashboard.Dashboard:
    """Return the dashboard that a file of ``pages`` describes."""
    described = yaml.safe_load(file.read_text())
    made = (
        dashboard.Dashboard(described["title"])
        .uid(f"signalbox-{file.stem}")
        .tags([TAG])
        .refresh("10s")
        .time("now-15m", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Signalbox")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(dashboard.DatasourceVariable("datasource").label("data source").type("prometheus"))
        .with_variable(chosen_label("fabric", "label_values(signalbox_build_info, fabric)"))
        .with_variable(chosen_label("instance", 'label_values(signalbox_build_info{fabric=~"$fabric"}, instance)'))
    )
    if described.get("one_job"):
        made = made.with_variable(_label("job", f"label_values(signalbox_job_flows{{{CHOSEN}}}, job_id)"))
    for name, color, expression in ANNOTATIONS:
        made = made.annotation(
            dashboard.AnnotationQuery()
            .name(name)
            .datasource(DATASOURCE)
            .enable(True)
            .icon_color(color)
            .expr(of_chosen(expression))
        )
    number_of_panel = 1
    for row, entries in described["rows"].items():
        made = made.with_row(dashboard.Row(row).id(number_of_panel))
        for place, entry in enumerate(entries, start=number_of_panel + 1):
            (kind, title), *parameters = entry.items()
            made = made.with_panel(KINDS[kind](title, **dict(parameters)).id(place))
        number_of_panel += len(entries) + 1
    return made


ANNOTATIONS = (
    (
        "the controller has started",
        BLUE,
        "time() - process_start_time_seconds < 60 and on (fabric, instance) signalbox_build_info",
    ),
    ("a switch is down", RED, "signalbox_switch_up == 0"),
    ("a cable is down", RED, "signalbox_link_up == 0"),
    ("a part is drained", ORANGE, "signalbox_drained == 1"),
    ("flows were repaired", ORANGE, "increase(signalbox_repairs_total[30s]) > 0"),
    ("an alarm is raised", RED, "sum by (kind) (signalbox_alarms) > 0"),
)
"""Name, colour and expression of each event that all dashboards mark. Metrics show an event one scrape later than
``signalbox events``."""


def chosen_label(name: str, query: str) -> dashboard.QueryVariable:
    """Return a variable of a label's values. Initially all are chosen, which includes series without the label."""
    return (
        _label(name, query)
        .include_all(True)
        .all_value(".*")
        .multi(True)
        .current(VariableOption(selected=True, text=["All"], value=["$__all"]))
        .hide(VariableHide.DONT_HIDE)
    )


def _label(name: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )


def _link_to_job() -> dashboard.DashboardLink:
    """Return a link from a row with the label ``job_id`` to the dashboard of that job."""
    return (
        dashboard.DashboardLink("this job")
        .type(DashboardLinkType.LINK)
        .url(
            "/d/signalbox-job?${__url_time_range}&${datasource:queryparam}&${fabric:queryparam}&${instance:queryparam}"
            "&var-job=${__data.fields.job_id}"
        )
    )
