"""Jobs for people, and their routes. In: API messages in their JSON form, or specs. Out: what rich prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from socket import inet_aton

from rich.console import Group, RenderableType

from signalbox.commands.output import escape
from signalbox.commands.printing import (
    ENDS,
    Fields,
    counted,
    known,
    rate,
    route_columns,
    route_rows,
    seconds,
    word,
)
from signalbox.commands.tables import Column, Fitted, facts
from signalbox.jobs.collectives import virtual_links
from signalbox.jobs.spec import JobSpec
from signalbox.live.shown import IMPOSSIBLE, SOURCES, STATES, planned_for, too_efficient, wired

MOST_PAIRS = 20
"""Of a job, in a table."""
MOST_NAMES = 8
"""Of hosts and groups, in a line; lines about jobs without circuits."""


_JOB_COLUMNS = (
    Column("job"),
    Column("state"),
    Column("ranks", 5, number=True),
    Column("flows", 3, number=True),
    Column("pinned", 2, number=True),
    Column("planned for", 4),
    Column("level", 1, number=True),
    Column("predicted", 6, number=True),
    Column("measured", 2, number=True),
    Column("iterations", 7, number=True),
    Column("lease left", 5, number=True),
)


def jobs(found: Sequence[Fields]) -> RenderableType:
    if not found:
        return "No jobs are registered."
    rows = (
        (
            job["spec"]["job_id"],
            ", ".join(
                [word(job["state"]), *(["no path"] if job["flows_without_path"] else []), *_findings(job["demand"])]
            ),
            len(job["spec"]["endpoints"]),
            job["virtual_links"],
            job["pinned"],
            planned(job["demand"]),
            known(job["level"], ".3f"),
            _predicted(job),
            _measured(job["efficiency_measured"]),
            job["iterations"],
            seconds(job["lease_left_s"]),
        )
        for job in found
    )
    wrong = any(too_efficient(job["efficiency_measured"]) for job in found)
    return Group(Fitted(_JOB_COLUMNS, rows), *([f"!: {IMPOSSIBLE}."] if wrong else []), *_without_circuits(found))


def _without_circuits(found: Sequence[Fields]) -> list[str]:
    """Why jobs wait, one line for each; too long for the table."""
    unwired = [job for job in found if job["wiring"] and job["wiring"]["unwired"]]
    lines = [f"{job['spec']['job_id']} has no circuits: {job['wiring']['unwired']}" for job in unwired[:MOST_NAMES]]
    left = len(unwired) - len(lines)
    return [*map(escape, lines), *([f"{left} more (--json has all)"] if left else [])]


def job(found: Fields) -> RenderableType:
    spec = found["spec"]
    about = {
        "job": spec["job_id"],
        "state": word(found["state"]),
        "hosts not found": _hosts(found["missing_hosts"]) or "none",
        **({"circuits": _circuits(found["wiring"])} if found["wiring"] else {}),
        "lease left": f"{seconds(found['lease_left_s'])} of {seconds(spec['lease_s'])}",
        "announced": _announced(spec),
        "revision": found["revision"],
        "flows": f"{found['virtual_links']}, {found['pinned']} pinned, in {found['subflows']} subflows"
        + (f"; {found['flows_without_path']} without a path" if found["flows_without_path"] else "")
        + (f"; {_of_which_strategy(found)}" if spec["strategies"] else ""),
        "may be split": _split(spec),
        "connections": "reported by the job" if spec["reports_connections"] else "not reported",
        "planned for": _in_words(found["demand"]) + _patterns(found["demand"]),
        "traffic": _traffic(found["demand"], observed=_observed(spec)),
        "level": known(found["level"], ".3f", unknown="not known yet"),
        "efficiency": f"{_predicted(found, ' predicted', 'not predicted')}, {_measured_in_words(found)}",
        **({"not predicted": found["prediction_withheld"]} if found["prediction_withheld"] else {}),
        "communication": _communication(found),
    }
    shown: list[RenderableType] = [facts(about)]
    if found["demand"] and found["demand"]["pairs"]:
        shown.append(_pairs(found["demand"]["pairs"]))
    rows = [
        (way["name"], c["phase"], word(c["algorithm"]), f"{int(c['bytes_per_iteration']):,}", _some(c["groups"]))
        for way in spec["strategies"] or [{**spec, "name": ""}]
        for c in way["collectives"]
    ]
    if not rows:
        return Group(*shown)
    columns = (
        *_STRATEGY,
        Column("phase"),
        Column("collective"),
        Column("bytes per iteration", number=True),
        Column("groups", wraps=True),
    )
    return Group(*shown, _of_strategies(columns, rows, bool(spec["strategies"])))


_STRATEGY = (Column("strategy"),)
"""The first column of what a job with strategies sends."""


def _of_strategies(columns: Sequence[Column], rows: Sequence[Sequence[object]], several: bool) -> Fitted:
    """Without their first column where a job has no strategies."""
    return Fitted(columns, rows) if several else Fitted(columns[1:], [row[1:] for row in rows])


def _observed(spec: Fields) -> bool:
    return not (spec["collectives"] or spec["transfers"] or spec["strategies"])


def _predicted(found: Fields, unit: str = "", unknown: str = "-") -> str:
    """Of a job that waits for hosts the API says 0: nothing is planned for it."""
    value = None if found["state"] == "pending" else found["efficiency_predicted"]
    return known(value, ".1%", unit, unknown)


def _communication(found: Fields) -> str:
    ideal = known(found["ideal_communication_s"], ".3f", " s ideal", "ideal not known yet")
    if not int(found["iterations"]):
        return f"{ideal}; no iteration reported"
    last = known(found["last_communication_s"], ".3f", " s", "not known")
    return f"{ideal}, {last} in the last of {found['iterations']} iterations"


def _measured(efficiency: float | None) -> str:
    return known(efficiency, ".1%", " !" if too_efficient(efficiency) else "")


def _measured_in_words(found: Fields) -> str:
    efficiency = found["efficiency_measured"]
    if too_efficient(efficiency):
        return f"{efficiency:.1%} measured, which is not possible: {IMPOSSIBLE}"
    awaited = "not measured yet on these routes and bytes" if int(found["iterations"]) else "not measured"
    return known(efficiency, ".1%", " measured", awaited)


def _findings(demand: Fields | None) -> list[str]:
    """Return words for what a job does otherwise than before, such as sending nothing."""
    return [found for found in demand["findings"] if found in STATES] if demand else []


def planned(demand: Fields | None) -> str:
    """Which bytes, and whether others are looked for."""
    return "-" if demand is None else planned_for(demand["source"]) + (", learning" if _looks_for(demand) else "")


def _in_words(demand: Fields | None) -> str:
    if demand is None:
        return "-"
    source = demand["source"]
    more = "; other pairs are looked for" if _looks_for(demand) else ""
    return f"{word(source)}: {SOURCES[source]}{more}" if source in SOURCES else word(source)


def _looks_for(demand: Fields) -> bool:
    """Whether pairs are learnt beside those that it is planned for."""
    return bool(demand["learning"]) and demand["source"] not in ("learning", "provisional")


def _patterns(demand: Fields | None) -> str:
    """Return which of its traffic patterns the job sends now; empty unless several are known."""
    if demand is None or demand["patterns"] < 2:
        return ""
    now = f"number {demand['pattern']}" if demand["pattern"] else "another one"
    return f"; {demand['patterns']} traffic patterns, now {now}"


def _traffic(demand: Fields | None, observed: bool) -> str:
    if demand is None or demand["window_s"] is None:
        return "not counted now"
    counted = f"{rate(demand['measured_bps'])} of payload"
    if not observed:
        counted += f", {demand['undeclared_fraction']:.1%} of it not announced"
    return "; ".join([counted, *map(STATES.__getitem__, _findings(demand)), *filter(None, [demand["difference"]])])


def _pairs(pairs: Sequence[Fields]) -> RenderableType:
    """The busiest, with bytes per iteration: as announced and as counted."""
    busiest = sorted(pairs, key=lambda pair: -max(pair["measured_bps"], int(pair["declared_bytes"])))[:MOST_PAIRS]
    rows = (
        (
            pair["src"],
            pair["dst"],
            f"{int(pair['declared_bytes']):,}",
            f"{pair['measured_bytes']:,.0f}" if pair["measured_bytes"] is not None else "-",
            rate(pair["measured_bps"]),
        )
        for pair in busiest
    )
    left = f"; {len(pairs) - len(busiest)} more with --json" if len(pairs) > len(busiest) else ""
    columns = (*ENDS, *(Column(name, number=True) for name in ("announced", "counted", "rate")))
    return Fitted(columns, rows, title=f"bytes per iteration{left}")


def _announced(spec: Fields) -> str:
    parts = []
    if ways := spec["strategies"]:
        of_library = f" (library: {word(spec['library'])})" if any(way["collectives"] for way in ways) else ""
        parts.append(f"{counted(len(ways), 'strategy', 'strategies')}{of_library}")
    if spec["collectives"]:
        parts.append(f"{counted(len(spec['collectives']), 'collective')} (library: {word(spec['library'])})")
    if spec["transfers"]:
        parts.append(counted(len(spec["transfers"]), "transfer"))
    nics = f", over {1 + len(spec['rails'])} NICs per rank" if spec["rails"] else ""
    return (" and ".join(parts) or "nothing, the job is observed") + nics


def _split(spec: Fields) -> str:
    if spec["max_subflows"] <= 1:
        return "no"
    return f"into {spec['max_subflows']} subflows over {word(spec['transport'])}, dealt {word(spec['dealing'])}"


def _circuits(wiring: Fields) -> str:
    """How the job is wired, or why it is not."""
    if wiring["unwired"]:
        return f"none: {wiring['unwired']}"
    times_s = (wiring[name] for name in ("iteration_s", "iteration_bound_s", "iteration_alternative_s"))
    return wired(len(wiring["circuits"]), wiring["strategy"], *times_s)


def _of_which_strategy(found: Fields) -> str:
    """Whose flows those of the job are: of the strategy that was chosen with its circuits, or of the first."""
    ways = found["spec"]["strategies"]
    if chosen := found["wiring"] and found["wiring"]["strategy"]:
        return f"those of strategy {chosen}, chosen from {len(ways)}"
    return f"those of strategy {ways[0]['name']}" + (f", the first of {len(ways)}" if len(ways) > 1 else "")


def _hosts(addresses: Sequence[str]) -> str:
    return _some(sorted(addresses, key=inet_aton))


def _some(names: Sequence[str]) -> str:
    """The first ones, and how many more: a model has dozens of groups. All are in the JSON output."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def registered(found: Fields) -> RenderableType:
    """The job, and what comes next."""
    if found["wiring"] and found["wiring"]["unwired"]:
        comes = f"It has no circuits yet: {found['wiring']['unwired']}."
    elif found["state"] == "pending":
        hosts = _hosts(found["missing_hosts"])
        comes = f"Waiting for {hosts}: the controller looks for them, and plans the job when all are found."
    else:
        comes = f"All its hosts are known. Its routes: signalbox jobs watch {found['spec']['job_id']}"
    lines = [escape(comes)]
    if len(found["spec"]["strategies"]) > 1 and not (found["wiring"] and found["wiring"]["circuits"]):
        chooses = "Where optical switches connect its servers, the controller chooses the strategy with the circuits."
        lines.append(f"Flows are {escape(_of_which_strategy(found))}. {chooses}")
    return Group(job(found), *lines)


def checked(spec: JobSpec) -> RenderableType:
    """What it would announce."""
    about = {
        "job": spec.job_id,
        "ranks": f"{len(spec.endpoints)} on {counted(len(set(spec.endpoints)), 'host')}",
        "announced": _announced(spec.model_dump(mode="json")),
    }
    if spec.observed:
        return facts({**about, "traffic": "learnt from what switches count"})
    if not spec.strategies:
        return Group(facts(about | _sent(spec)), _parts([("", spec)], several=False))
    ways = [(way, spec.of_strategy(way.name)) for way in spec.strategies]
    rows = [
        (way.name, *_sent(plain).values(), f"{sum(each.seconds for each in way.compute):g}" if way.compute else "-")
        for way, plain in ways
    ]
    columns = (
        *_STRATEGY,
        Column("groups", 1, number=True),
        Column("virtual links", wraps=True),
        Column("bytes per iteration", number=True),
        Column("largest sender", 2, wraps=True),
        Column("computing (s)", number=True),
    )
    return Group(facts(about), Fitted(columns, rows), _parts([(way.name, plain) for way, plain in ways], several=True))


def _sent(spec: JobSpec) -> dict[str, str]:
    """In all, of one without strategies."""
    links = virtual_links(spec)
    sent = Counter[str]()
    for link in links:
        sent[link.src_ip] += link.bytes
    in_phases = len({link.phase for link in links})
    return {
        "groups": str(len(spec.groups)),
        "virtual links": f"{len(links)}, between {counted(len(links.pairs), 'pair')} of addresses, "
        f"in {counted(in_phases, 'phase')}",
        "bytes per iteration": f"{sent.total():,}",
        "largest sender": "none" if not sent else "{}, {:,} bytes per iteration".format(*sent.most_common(1)[0]),
    }


def _parts(named: Sequence[tuple[str, JobSpec]], several: bool) -> Fitted:
    """What each strategy consists of."""
    rows: list[Sequence[object]] = []
    for name, spec in named:
        if of := spec.transfers:
            each = _range([transfer.bytes_per_iteration for transfer in of])
            rows.append((name, _range([transfer.phase for transfer in of]), "transfer", each, len(of), 2))
        sizes = {group.name: len(group.ranks) for group in spec.groups}
        for c in spec.collectives:
            ranks = _range([sizes[group] for group in c.groups])
            rows.append((name, c.phase, word(c.algorithm), f"{c.bytes_per_iteration:,}", len(c.groups), ranks))
    columns = (
        *_STRATEGY,
        Column("phase"),
        Column("what"),
        *(Column(name, number=True) for name in ("bytes per iteration", "number", "ranks in each")),
    )
    return _of_strategies(columns, rows, several)


def _range(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def routes(found: Fields) -> RenderableType:
    split = any(len(r["subflows"]) > 1 for r in found["routes"])
    rows = (row for r in found["routes"] for row in route_rows(r, split))
    return Fitted(route_columns(split), rows, title=f"routes, change {found['generation']}")
