"""Files for Prometheus, Grafana and containers: they are valid, and name metrics that exist."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from benchmarks.monitoring import (
    DASHBOARDS,
    dashboard_expressions,
    dashboards,
    filled_in,
    kinds_with_an_alert,
    panels,
    rules,
)
from controller.alarms import severity
from controller.config import Config
from controller.observability.families import FAMILIES
from signalbox.words import AlarmKind
from tests.support.doc_pages import PAGES
from tests.unit.deploy.test_deb import pins

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
PARTS = {"histogram": ("_bucket", "_count", "_sum")}
METRICS = {family.name + part for family in FAMILIES for part in PARTS.get(family.kind, ("",))}
RULES = rules("rules.yml")
RECORDED = {rule["record"] for rule in RULES}


def run(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_accepts_its_configurations_and_rules() -> None:
    run("promtool", "check", "config", *(DEPLOY / "prometheus" / name for name in ("prometheus.yml", "containers.yml")))


def test_prometheus_scrapes_where_the_controller_listens_by_default() -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    metrics = Config().metrics
    assert job["static_configs"][0]["targets"] == [f"{metrics.host}:{metrics.port}"]


CASES = [DEPLOY / "prometheus" / name for name in ("alerts_test.yml", "alerts_hours_test.yml")]
"""Cases of the alerts: the second file has those that last for hours, so their rules are evaluated less often."""


def test_alerts_come_when_they_should_and_only_then() -> None:
    run("promtool", "test", "rules", *CASES)


def test_every_alert_has_a_case_in_which_it_comes_and_goes() -> None:
    cases = [case for file in CASES for case in yaml.safe_load(file.read_text())["tests"]]
    lasting = set()
    for rule in rules("alerts.yml"):
        came_and_went = False
        for case in cases:
            looks = [look for look in case.get("alert_rule_test", ()) if look["alertname"] == rule["alert"]]
            came = [_seconds(look["eval_time"]) for look in looks if look.get("exp_alerts")]
            none = [_seconds(look["eval_time"]) for look in looks if not look.get("exp_alerts")]
            came_and_went |= bool(came and none and max(none) > min(came))
        lasting |= set() if came_and_went else {rule["alert"]}
    assert not lasting


def test_alarms_that_are_left_to_other_alerts_exist_and_the_page_says_to_which() -> None:
    """The alert for the kind's own severity must exclude the kind; otherwise its alarm would alert twice."""
    page = (ROOT / "docs" / "reference" / "alarms.md").read_text()
    alerts = {rule["alert"]: rule["expr"] for rule in rules("alerts.yml")}
    for kind in map(AlarmKind, kinds_with_an_alert()):
        (row,) = re.findall(rf"^\| `{kind}` \| (.*)$", page, re.MULTILINE)
        assert set(re.findall(r"\*(Signalbox\w+)\*", row)) & alerts.keys(), kind
        assert kind in alerts["SignalboxCriticalAlarm" if severity(kind) == "critical" else "SignalboxAlarm"]


def test_the_runbook_of_each_alert_is_the_section_about_it_or_about_its_alarm() -> None:
    (page,) = (page for page in PAGES if page.name == "docs/reference/alarms.md")
    for rule in rules("alerts.yml"):
        file, _, section = rule["annotations"]["runbook"].partition("#")
        of_alarm = re.findall(rf"^\| `{section}` \| .*\*{rule['alert']}\*", page.text, re.MULTILINE)
        assert file == page.name
        assert section in (rule["alert"].lower(), "{{ $labels.kind }}") or of_alarm, rule["alert"]
        assert section in page.anchors or {*AlarmKind} <= page.anchors


def test_one_scrape_that_fails_ends_no_alert_that_lasts_for_a_time() -> None:
    """The only exception is the alert for the failed scrape itself."""
    ending = [rule["alert"] for rule in rules("alerts.yml") if "for" in rule and "keep_firing_for" not in rule]
    assert ending == ["SignalboxAbsent"]


def _seconds(duration: str) -> int:
    units = {"s": 1, "m": 60, "h": 3600}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([smh])", duration))


@pytest.mark.parametrize("source", ["alerts", "rules", "dashboard"])
def test_only_metrics_that_exist_are_asked_for(source: str) -> None:
    """Expressions may also name recorded series."""
    expressions = {
        "alerts": [rule["expr"] for rule in rules("alerts.yml")],
        "rules": [rule["expr"] for rule in RULES],
        "dashboard": [*dashboard_expressions()],
    }
    asked = {name for text in expressions[source] for name in re.findall(r"[\w:]*\bsignalbox[\w:]+", text)}
    assert asked
    assert asked <= METRICS | RECORDED


def test_the_receivers_of_the_alertmanager_example_exist_and_so_do_the_alerts_that_it_names() -> None:
    run("amtool", "check-config", DEPLOY / "alertmanager" / "alertmanager.yml")
    text = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text()
    config = yaml.safe_load(text)
    routes = [config["route"], *config["route"]["routes"]]
    assert {route["receiver"] for route in routes} == {receiver["name"] for receiver in config["receivers"]}
    named = set(re.findall(r'alertname!?="(\w+)"', text))
    assert named <= {rule["alert"] for rule in rules("alerts.yml")}


def test_dashboards_are_what_their_source_generates(tmp_path: Path) -> None:
    run(sys.executable, DEPLOY / "grafana" / "generate.py", "--out", tmp_path)
    generated = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert generated == {file.name: file.read_text() for file in DASHBOARDS.iterdir()}, "run: make dashboard"


def test_panels_explain_themselves_and_do_not_overlap() -> None:
    for dashboard in dashboards().values():
        taken: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken, panel["title"]
            taken |= cells
        ids = [panel["id"] for panel in dashboard["panels"]]
        assert len(ids) == len(set(ids))
    assert all(panel["title"] and panel["description"] for _, panel in panels())


def test_every_metric_is_on_a_panel() -> None:
    """The panel may show the metric itself, or a series recorded from it."""
    asked = " ".join([*dashboard_expressions(), *(rule["expr"] for rule in RULES)])
    absent = {family.name for family in FAMILIES if not re.search(rf"\b{family.name}(_bucket|_count|_sum)?\b", asked)}
    assert absent == set()


def test_dashboards_follow_the_chosen_data_source_fabric_and_controller() -> None:
    for dashboard in dashboards().values():
        found = [variable["name"] for variable in dashboard["templating"]["list"]][:3]
        assert found == ["datasource", "fabric", "instance"]
        asked = [note["expr"] for note in dashboard["annotations"]["list"]]
        of_panels = [panel["targets"] for panel in dashboard["panels"] if panel["type"] != "row"]
        asked += [target["expr"] for targets in of_panels for target in targets]
        for expression in asked:
            text = expression.replace('="signalbox"', "")
            series = re.findall(r"(?:\w+:)?\b(?:signalbox|process_|etcd_|up\b)[\w:]*(.{8})", text)
            assert set(series) == {"{fabric="}, expression
    assert {panel["datasource"]["uid"] for _, panel in panels()} == {"${datasource}"}


def test_a_controller_that_does_not_answer_is_shown_whatever_the_scrape_job_is_called(tmp_path: Path) -> None:
    (asked,) = (panel["targets"][0]["expr"] for _, panel in panels() if panel["title"] == "Answers")
    labels = '{job="fabrics", instance="a:9464"}'
    given = {f"up{labels}": "1x10 0x60", f"signalbox_build_info{labels}": "1x10"}
    given['up{job="node", instance="a:9100"}'] = "0x70"
    tests = [
        {"expr": filled_in(asked, ""), "eval_time": at, "exp_samples": [{"labels": "{}", "value": up}]}
        for at, up in (("5m", 1), ("60m", 0))
    ]
    series = [{"series": name, "values": values} for name, values in given.items()]
    case = {"interval": "1m", "input_series": series, "promql_expr_test": tests}
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"tests": [case]}))
    run("promtool", "test", "rules", tmp_path / "test.yml")


def test_a_table_of_the_least_begins_with_the_least() -> None:
    """All other tables begin with the largest value: only the first rows are visible without scrolling."""
    tables = [panel for _, panel in panels() if panel["type"] == "table" and panel["options"].get("sortBy")]
    assert tables
    for panel in tables:
        least = panel["targets"][0]["expr"].startswith("bottomk")
        assert panel["options"]["sortBy"] == [{"displayName": "Value", "desc": not least}], panel["title"]


def test_the_mark_of_a_start_is_there_at_any_usual_interval_of_scrapes() -> None:
    """A controller adopts rules for a few seconds, which scrapes at the usual 15 to 60 s do not see."""
    for dashboard in dashboards().values():
        (start,) = (note["expr"] for note in dashboard["annotations"]["list"] if "started" in note["name"])
        assert start.startswith("time() - process_start_time_seconds")


def test_panels_that_know_switches_by_their_names_alone_are_of_one_fabric_each() -> None:
    def steps(panel: dict[str, Any]) -> set[str]:
        return {step["id"] for step in panel.get("transformations") or ()}

    named = [each for _, each in panels() if each["type"] == "nodeGraph" or "groupingToMatrix" in steps(each)]
    assert len(named) == 2
    assert all(panel["repeat"] == "fabric" and panel["title"].endswith(" $fabric") for panel in named)


def test_dashboards_lead_to_each_other() -> None:
    uids = {dashboard["uid"] for dashboard in dashboards().values()}
    assert uids == {"signalbox-fabric", "signalbox-job", "signalbox-controller"}
    text = "".join(file.read_text() for file in DASHBOARDS.iterdir())
    assert set(re.findall(r"/d/([\w-]+)\?", text)) <= uids
    assert all(dashboard["links"][0]["tags"] == dashboard["tags"] for dashboard in dashboards().values())


def test_graphs_choose_the_largest_once_for_all_of_the_range() -> None:
    chosen = {
        panel["title"]: re.findall(r"(?:top|bottom)k\(\d+, (.*)", target["expr"])
        for _, panel in panels()
        for target in panel["targets"]
        if panel["type"] == "timeseries" and re.search("(top|bottom)k", target["expr"])
    }
    assert len(chosen) >= 6
    at_each_time = [title for title, found in chosen.items() if not all("[$__range" in each for each in found)]
    assert at_each_time == []


def test_a_job_is_looked_at_in_the_fabric_that_was_chosen() -> None:
    links = [
        link["url"]
        for panel in dashboards()["fabric"]["panels"]
        for link in panel.get("fieldConfig", {}).get("defaults", {}).get("links", ())
    ]
    assert links
    assert all("${fabric:queryparam}" in url and "${instance:queryparam}" in url for url in links)


def test_rules_keep_the_labels_of_the_fabric_and_the_controller() -> None:
    for rule in [*rules("alerts.yml"), *RULES]:
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"]):
            assert labels.startswith("fabric, instance"), rule["expr"]


def test_the_lock_names_no_host_and_pins_uv_once() -> None:
    lock = (ROOT / "requirements/lock.txt").read_text()
    uv = (ROOT / "requirements/uv.txt").read_text()
    assert uv in lock
    assert "://" not in lock + (ROOT / "requirements/docs.txt").read_text()


@pytest.mark.parametrize(
    ("role", "folder"), [("controller", "."), ("emulator", "offline"), ("web", "client"), ("kubernetes", "client")]
)
def test_an_image_has_the_packages_of_the_lock_and_all_that_its_distribution_needs(role: str, folder: str) -> None:
    locked, wanted = pins("lock.txt"), pins(f"{role}.txt")
    assert wanted.items() <= locked.items(), "run: make lock"
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    needs = project["dependencies"] + project.get("optional-dependencies", {}).get(role, [])
    names = {Requirement(text).name for text in needs} - {"signalbox-client", "signalbox-controller"}
    assert names <= wanted.keys(), "run: make lock"
    assert not wanted.keys() & {"pytest", "uv", "mypy"}


SCRIPTS = [
    *("scripts/bootstrap.sh", "scripts/openvswitch.sh", "deploy/healthy.sh", ".ci/run"),
    *(f"deploy/debian/{name}" for name in ("postinst", "prerm", "postrm")),
    *(str(file.relative_to(ROOT)) for file in sorted((DEPLOY / "slurm").glob("*.sh"))),
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_shell_scripts_parse_and_are_executable(script: str) -> None:
    shell = "sh" if "debian" in script else "bash"
    run(shell, "-n", ROOT / script)
    assert ((ROOT / script).stat().st_mode & 0o111 == 0o111) is not script.endswith("settings.sh")
