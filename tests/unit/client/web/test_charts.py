"""Options of charts: their colours and data, and that text from outside stays text."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from signalbox.live.picture import DARK, LIGHT, Paper, colour, picture
from signalbox.live.state import Slowdowns, State
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.web import asking, beside, charts
from signalbox.web.charts import Options
from signalbox.web.style import PRIMARY
from tests.support.circuit_messages import rings
from tests.support.fabric_messages import leaf_spine, link, state_of


@pytest.mark.parametrize("paper", [LIGHT, DARK])
def test_loads_are_mixed_between_the_steps_of_the_scale(paper: Paper) -> None:
    assert [colour(step / 4, paper) for step in range(5)] == list(paper.scale)
    assert colour(0.125, DARK) == "#22385d"
    assert colour(-1.0, paper) == paper.scale[0]
    assert colour(1.7, paper) == paper.scale[-1]
    assert colour(None, paper) == paper.unknown


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2 defines it."""

    def luminance(ink: str) -> float:
        parts = [int(ink[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("paper", [LIGHT, DARK])
def test_text_buttons_and_rims_of_empty_links_are_seen_on_their_paper(paper: Paper) -> None:
    inks = (paper.text, paper.faint, paper.down, paper.drained)
    assert min(contrast(ink, paper.background) for ink in inks) >= 4.5
    assert contrast(PRIMARY, "#ffffff") >= 4.5
    options = charts.graph(picture(state_of(leaf_spine(1, 1))), paper, ())
    rims = [each["lineStyle"]["shadowColor"] for each in options["series"][0]["links"] if "part" in each]
    assert [contrast(rim, paper.background) >= 3 for rim in rims] == [True]


ODD = ":<img src=x onerror=alert(1)> {b} \x1b[31m"


def keys(options: Any) -> Iterator[str]:
    if isinstance(options, dict):
        for key, value in options.items():
            yield key
            yield from keys(value)
    elif isinstance(options, list):
        for value in options:
            yield from keys(value)


def series(options: Options, name: str) -> Any:
    return next(each for each in options["series"] if each["id"] == name)


def test_a_graph_has_each_switch_host_and_cable_in_the_colour_and_width_of_its_load() -> None:
    state = state_of(leaf_spine(4, 4))
    state.take_fabric(pb.WatchFabricResponse(links=[link((1, 1), (0x101, 1), "leaf1:1>spine1", 0.9)]))
    drawn = series(charts.fabric(picture(state), 0, DARK, ()), "fabric")
    assert len(drawn["data"]) == 8 + 4
    styles = {each["part"]: each["lineStyle"] for each in drawn["links"] if "part" in each}
    assert len(styles) == 16
    fuller = styles.pop("leaf1:1>spine1")
    assert (fuller["color"], styles["leaf2:1>spine1"]["color"]) == (colour(0.9, DARK), colour(0.5, DARK))
    assert fuller["width"] > max(style["width"] for style in styles.values())


def test_what_is_down_is_dashed_what_is_drained_dotted_and_a_route_bright() -> None:
    fabric = leaf_spine(2, 2)
    fabric.drains.add(name="leaf2:2>spine2")
    fabric.parts_down.add(kind=pb.PART_KIND_LINK, name="leaf1:3>spine1", id="x")
    drawn = series(charts.fabric(picture(state_of(fabric)), 0, LIGHT, ()), "fabric")
    kinds = {each["part"]: each["lineStyle"]["type"] for each in drawn["links"] if "part" in each}
    assert kinds["leaf1:3>spine1"] == "dashed"
    assert kinds["leaf2:2>spine2"] == "dotted"
    assert kinds["leaf1:1>spine1"] == "solid"
    drawn = series(charts.rates(picture(state_of(fabric)), 0, LIGHT, {(0x101, 2)}), "fabric")
    shown = {each["part"] for each in drawn["links"] if each["lineStyle"]["opacity"] == 1 and "part" in each}
    assert shown == {"leaf2:1>spine1", "leaf1:3>spine1", "leaf2:2>spine2"}, "the rest of what is up is faded"


def test_what_is_chosen_is_marked_in_a_graph_and_in_a_matrix() -> None:
    found = picture(state_of(leaf_spine(2, 2)))

    def sizes(chosen: str) -> tuple[dict[str, Any], dict[str, Any]]:
        drawn = series(charts.rates(found, 0, LIGHT, {(0x101, 2)}, chosen), "fabric")
        widths = {each["part"]: each["lineStyle"]["width"] for each in drawn["links"] if "part" in each}
        return {each["part"]: each["symbolSize"] for each in drawn["data"] if "part" in each}, widths

    switches, cables = sizes("0x101")
    assert [name for name, size in switches.items() if size > min(switches.values())] == ["spine1"]
    switches, cables = sizes("leaf1:2>spine2")
    assert len(set(switches.values())) == 1
    assert max(cables, key=lambda name: cables[name]) == "leaf1:2>spine2"
    found = picture(state_of(leaf_spine(64, 32)))
    for chart in (charts.rates, charts.fabric):
        assert series(chart(found, 0, LIGHT, (), "leaf3:5>spine5"), "chosen")["data"] == [(4, 2)]
    options = charts.rates(found, 0, LIGHT, (), "0x103")
    assert [each["value"] for each in options["xAxis"]["data"] if "textStyle" in each] == ["spine3"]
    assert series(options, "chosen")["data"] == []


def test_a_cable_says_whose_flows_it_carries() -> None:
    cable = next(each for each in picture(state_of(leaf_spine(2, 2))).cables if each.name == "leaf2:1>spine1")
    jobs = enumerate(("ring", "ring", "other", "elsewhere"))
    routes = [pb.ListedRoute(job_id=job, src=f"10.0.1.{n}") for n, job in jobs]
    for route, at in zip(routes, [(2, 1), (0x101, 2), (2, 1), (1, 1)], strict=True):
        route.held.add().links.add(dpid=at[0], port=at[1])
    assert asking.carried(cable, routes) == "It carries pinned flows of other (1 flow), ring (2 flows)."
    assert asking.carried(cable, routes[3:]) == "No pinned flow travels over it."


def test_the_first_lines_say_what_the_plan_gains_and_what_is_wrong_until_it_is_over() -> None:
    state = State()
    assert asking.facts(state) == ""
    counts: dict[str, Any] = {"switches_in_sync": 8, "known_switches": 8, "jobs": 2}
    state.status = pb.GetStatusResponse(mode=pb.MODE_PLANNED, version="1", **counts)
    state.slowdowns.append(Slowdowns(1.0, 1.0, 1.0, 2.335))
    expected = "planned · 8 of 8 switches in sync · 2 jobs · efficiency - · worst slowdown 1.000, under ECMP 2.335 · 1"
    assert asking.facts(state) == expected
    state = State()
    assert "first answer" in asking.wrong(state)
    state.take_lost("nobody answers")
    assert asking.wrong(state) == "This view is out of date: nobody answers"
    state.take_lost("")
    state.take_refused("jobs", "no token")
    assert asking.wrong(state) == "This view is incomplete: no token"
    state.take_refused("jobs", "")
    assert asking.wrong(state) == ""


def test_a_large_fabric_is_a_matrix_of_percents_where_what_is_not_measured_differs_from_what_is_not_there() -> None:
    """A heat map draws nothing where it has no value."""
    fabric = leaf_spine(64, 32)
    fabric.parts_down.add(kind=pb.PART_KIND_LINK, name="leaf3:40>spine2", id="x")
    fabric.drains.add(name="leaf64:32>spine32")
    found = picture(state_of(fabric))
    options = charts.fabric(found, 0, LIGHT, {(5, 7)})
    assert len(options["yAxis"]["data"]) == 64
    assert len(options["xAxis"]["data"]) == 32
    assert len(series(options, "fabric")["data"]) == 2048
    assert series(options, "fabric")["data"][0] == [0, 0, 50, 50, "-"]
    assert series(options, "route")["data"] == [(6, 4)]
    assert sorted(series(options, "marks")["data"]) == [[1, 2, "✕"], [31, 63, "D"]]
    assert len(json.dumps(charts.rates(found, 0, LIGHT, ()))) < 60_000
    state = state_of(leaf_spine(64, 32))
    for at in ((3, 5), (0x105, 3), (9, 1)):
        state.links[at].ClearField("rate_bps")
    down = pb.DownPart(kind=pb.PART_KIND_LINK, name="leaf2:40>spine4", id="x")
    state.take_fabric(pb.WatchFabricResponse(parts_down=[down]))
    for chart in (charts.fabric, charts.rates):
        assert series(chart(picture(state), 0, LIGHT, ()), "unknown")["data"] == [(4, 2), (0, 8)]


def test_a_cell_has_the_loads_of_the_fullest_parallel_cable_which_a_click_chooses() -> None:
    """The fullest cable is chosen by its exact load, even when the loads are equal in whole per cent."""
    state = state_of(leaf_spine(3, 2))
    there = [link((1, port), (0x101, port), f"leaf1:{port}>spine1", load) for port, load in ((1, 0.701), (9, 0.1))]
    back = link((0x101, 9), (1, 9), "spine1:9>leaf1", 0.704)
    state.take_fabric(pb.WatchFabricResponse(links=[*there, back]))
    found = picture(state)
    assert charts.fullest(found.matrices[0].cells[0, 0]).name == "leaf1:9>spine1"
    assert charts.cells(found.matrices[0])[0] == [0, 0, 70, 10, 70]


def test_text_from_outside_is_never_a_key_nor_html() -> None:
    fabric = leaf_spine(2, 2)
    for switch in fabric.switches:
        switch.name = ODD + switch.name
    for each in fabric.links:
        each.name = ODD + each.name
    fabric.hosts[0].ip = ODD
    state = state_of(fabric)
    job = pb.Job(spec=pb.JobSpec(job_id=ODD))
    job.demand.pairs.add(src=ODD, dst=ODD, declared_bytes=5)
    fabric_chart = charts.fabric(picture(state), 0, LIGHT, ())
    for options in (fabric_chart, beside.cables_of(picture(state), 1, LIGHT), beside.demand(job, LIGHT)):
        assert not [key for key in keys(options) if key.startswith(":") or "img" in key]
        assert options["tooltip"]["renderMode"] == "richText"
    drawn = series(fabric_chart, "fabric")
    assert not [each for each in drawn["data"] + drawn["links"] if "{" in each["tooltip"].get("formatter", "")]


def test_slowdowns_over_time_and_demand_of_a_job() -> None:
    options = beside.slowdowns([Slowdowns(1.0, 2.0, 1.0, None), Slowdowns(2.0, 1.5, 1.0, 2.5)], LIGHT)
    assert options["useUTC"]  # as alarms and events show their times
    assert series(options, "plan")["data"] == [[1000, 2.0], [2000, 1.5]]
    assert series(options, "ECMP")["data"] == [[1000, None], [2000, 2.5]]
    job = pb.Job(spec=pb.JobSpec(job_id="ring"))
    job.demand.pairs.add(src="a", dst="b", declared_bytes=2_000_000, measured_bps=8e6, measured_bytes=1_500_000)
    job.demand.pairs.add(src="b", dst="a", declared_bytes=1_000_000)
    options = beside.demand(job, LIGHT)
    assert series(options, "declared")["data"] == [2.0, 1.0]
    assert series(options, "measured")["data"] == [1.5, "-"]


def test_of_an_observed_job_without_iterations_the_pairs_that_send_most_are_shown() -> None:
    """An observed job announces nothing, and the bytes of its iterations are unknown: only rates rank its pairs."""
    job = pb.Job(spec=pb.JobSpec(job_id="observed"))
    for number in range(beside.MOST_PAIRS + 5):
        job.demand.pairs.add(src=f"s{number}", dst="d", measured_bps=1e6 * number)
    shown = beside.demand(job, LIGHT)["xAxis"]["data"]
    assert [each.split(" > ")[0] for each in shown] == [f"s{number}" for number in range(24, 4, -1)]


@pytest.mark.parametrize("leaves", [2, 64])
def test_the_picture_in_words(leaves: int) -> None:
    fabric = leaf_spine(leaves, 32)
    fabric.parts_down.add(kind=pb.PART_KIND_LINK, name="leaf1:40>spine2", id="x")
    state = state_of(fabric)
    words = asking.summary(state, picture(state))
    counts = f"{leaves + 32} switches, {leaves * 32 + 1} cables, {leaves} hosts"
    assert words.startswith(f"{counts}; 1 part down; fullest cable")
    state.take_fabric(pb.WatchFabricResponse(drains=[pb.DrainedPart(name="spine2")]))
    assert "; 1 part down; 1 part drained; " in asking.summary(state, picture(state)), "not its cables"


def test_circuits_are_arrows_between_servers_on_a_circle() -> None:
    state = state_of(rings(4, (1, 3)))
    options = charts.fabric(picture(state), 0, LIGHT, {(1, 2), (3, 3)}, "server1:2>server2")
    drawn = series(options, "fabric")
    assert len(drawn["data"]) == 4  # the servers, without hosts beside them
    assert len({(round(each["x"]), round(each["y"])) for each in drawn["data"]}) == 4
    assert len(drawn["links"]) == 8
    assert {each["symbol"][1] for each in drawn["links"]} == {"arrow"}
    assert {each["lineStyle"]["color"] for each in drawn["links"]} == {colour(0.25, LIGHT)}
    ends = {each["part"]: (each["source"], each["target"]) for each in drawn["links"]}
    assert ends["server1:3>server4"] == ("0x1", "0x4")
    assert ends["server4:2>server1"] == ("0x4", "0x1")
    bright = {each["part"] for each in drawn["links"] if each["lineStyle"]["opacity"] == 1}
    assert bright == {"server1:2>server2", "server3:3>server2"}
    assert asking.summary(state, picture(state)).startswith("4 switches, 8 circuits, 4 hosts; fullest circuit server")
    fabric = rings(3, (1,))
    fabric.links.append(link((2, 3), (1, 3), "server2:3>server1"))
    fabric.links[-1].one_way = True
    drawn = series(charts.fabric(picture(state_of(fabric)), 0, LIGHT, ()), "fabric")
    bent = {each["part"] for each in drawn["links"] if each["lineStyle"]["curveness"]}
    assert bent == {"server1:2>server2", "server2:3>server1"}, "circuits there and back are apart"


def test_circuits_of_one_server_and_of_many() -> None:
    drawn = beside.cables_of(picture(state_of(rings(5, (1, 2)))), 1, LIGHT)
    assert drawn["title"]["text"] == "Circuits of server1, load in %"
    assert drawn["xAxis"]["data"] == ["server2", "server3", "server4", "server5"]
    found = [(each["name"], each["data"]) for each in drawn["series"]]
    assert found == [("to others", [25, 25, "-", "-"]), ("from others", ["-", "-", 25, 25])]
    many = picture(state_of(rings(90, (1, 2, 7))))
    options = charts.fabric(many, 0, LIGHT, {(1, 4)})
    assert len(options["xAxis"]["data"]) == len(options["yAxis"]["data"]) == 90
    assert len(series(options, "fabric")["data"]) == 270
    assert series(options, "fabric")["encode"]["tooltip"] == [1, 0, 2]
    assert series(options, "route")["data"] == [(7, 0)]
