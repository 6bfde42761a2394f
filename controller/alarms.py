"""Alarms for operators, as typed values (kind, subject, facts), and their texts for people (``text``).

The control loop raises alarms (``core/alarms.py``). The API and the log print the texts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from controller.demand.job_demand import Difference, Finding
from controller.fabric.parts import Part, PartKind, SwitchRole
from controller.silence import Silence
from controller.store.store import LARGEST_EPOCH
from controller.tables.rules import Table
from controller.tables.switch_sync import TableUse
from signalbox.jobs.subflows import Pair
from signalbox.words import AlarmKind

MAX_MISSING = 4
"""Largest number of missing switches of a role that the text of ``FABRIC_INCOMPLETE`` names."""

NEGLIGIBLE = 0.01
"""Fraction of its announced bytes below which a pair is said to carry nothing in the text of an alarm."""

Severity = Literal["warning", "critical"]


CRITICAL = {
    AlarmKind.FLOWS_WITHOUT_PATH,
    AlarmKind.MASTERSHIP_LOST,
    AlarmKind.GENERATION_AHEAD,
    AlarmKind.DUPLICATE_DPID,
    AlarmKind.LLDP_FORGED,
    AlarmKind.STATE_NOT_SAVED,
    AlarmKind.SWITCH_DOWN,
    AlarmKind.FABRIC_INCOMPLETE,
}


OF_JOBS = frozenset({AlarmKind.HOSTS_MISSING, AlarmKind.DEMAND_DIFFERS, AlarmKind.SLOT_IGNORED})
"""Kinds of alarms about jobs, which the tenants of the jobs may see."""

AlarmKey = tuple[AlarmKind, str]
"""Identity of an alarm: kind and subject."""


class Missed(NamedTuple):
    """Switches of one role: the expected number, and the names of missing ones."""

    expected: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Alarm:
    """A raised alarm: its kind, its subject, and the facts about it."""

    kind: AlarmKind
    subject: str
    """Name of the thing that the alarm is about.

    The thing is a switch, port (``leaf1:3``), flow table (``leaf1:table1``), cable (``leaf1:3>spine2``), host (its
    address), job or member, or ``plan``, ``state`` or ``fabric``. For refused connections the subject is the reason."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further facts, which may change while the alarm lasts."""
    since: float = 0.0
    """Time since which an alarm of this kind and subject is raised, in monotonic seconds."""
    silence: Silence | None = None
    """Silence that an operator has set for the alarm."""

    @property
    def severity(self) -> Severity:
        return severity(self.kind)

    @property
    def key(self) -> AlarmKey:
        return self.kind, self.subject


def severity(kind: AlarmKind) -> Severity:
    """Return the severity.

    ``critical``: traffic is lost, changes of jobs are refused, or a switch or link cannot be trusted."""
    return "critical" if kind in CRITICAL else "warning"


def same_news(before: Alarm, after: Alarm) -> bool:
    """Return whether two states of an alarm have the same facts; small changes of measured values do not count."""
    return replace(before, facts=_news(before)) == replace(after, facts=_news(after))


def _news(alarm: Alarm) -> Mapping[str, Any]:
    """Return the alarm's facts, without small changes of measured values, so that equal results mean no news.

    Rates are left out. The ratio of a pair is replaced by its kind (``_kind``). The factor is rounded to a power of the
    square root of two."""
    if alarm.kind is AlarmKind.PUNT_LIMIT_EXCEEDED:
        return {}
    if alarm.kind is not AlarmKind.DEMAND_DIFFERS:
        return alarm.facts
    found: Difference = alarm.facts["difference"]
    return {
        "difference": found._replace(
            undeclared=tuple((pair, 0.0) for pair, _ in found.undeclared),
            off=tuple((pair, _KINDS.index(_kind(ratio))) for pair, ratio in found.off),
            factor=None if found.factor is None else round(2 * math.log2(max(found.factor, NEGLIGIBLE))),
        )
    }


def text(alarm: Alarm) -> str:
    """Return the alarm as a sentence."""
    facts = alarm.facts
    match alarm.kind:
        case AlarmKind.FLOWS_WITHOUT_PATH:
            of_jobs: Mapping[str, int] = facts.get("of_jobs", {})
            flows = [f"{flow.src_ip} > {flow.dst_ip}" for flow in facts["flows"]]
            flows += [f"{number} of job {job}" for job, number in sorted(of_jobs.items())]
            number = sum(of_jobs.values()) or len(flows)
            return f"{'1 flow has' if number == 1 else f'{number} flows have'} no path: {', '.join(flows[:4])}"
        case AlarmKind.HOSTS_MISSING:
            hosts = list(facts["hosts"])
            count = "1 host" if len(hosts) == 1 else f"{len(hosts)} hosts"
            return f"job {alarm.subject} waits for {count}: {', '.join(hosts[:4])}{', ...' * (len(hosts) > 4)}"
        case AlarmKind.DEMAND_DIFFERS:
            return f"job {alarm.subject} {_contradiction_text(facts['difference'])}"
        case AlarmKind.RULES_REFUSED:
            refused = (f"{'a rule' if n == 1 else f'{n} rules'} ({reason})" for reason, n in facts["reasons"].items())
            return f"{alarm.subject} refused {' and '.join(refused)}; the flows of these rules stay on ECMP"
        case AlarmKind.SWITCH_DOWN | AlarmKind.LINK_DOWN | AlarmKind.HOST_DOWN:
            return _down_text(facts["part"])
        case AlarmKind.FABRIC_INCOMPLETE:
            return "; ".join(_missed_text(role, *missed) for role, missed in facts["of_role"].items())
        case AlarmKind.GENERATION_AHEAD:
            return _ahead_text(alarm.subject, facts["generation"])
        case AlarmKind.MEMBER_ABSENT:
            return f"member {alarm.subject} is absent; it was seen last at {_utc(facts['seen'])}"
        case AlarmKind.TABLE_NEARLY_FULL:
            return _table_text(facts["switch"], facts["use"], facts["refused"])
        case kind:
            return _TEXTS[kind].format(subject=alarm.subject, **facts)


def _missed_text(role: SwitchRole | None, expected: int, missing: tuple[str, ...]) -> str:
    names = sorted(missing, key=_natural_sort_key)
    more = f" and {len(names) - MAX_MISSING} more" if len(names) > MAX_MISSING else ""
    what = _NOUNS[role][expected != 1]
    return (
        f"expected {expected} {what}, found {expected - len(names)} (missing: {', '.join(names[:MAX_MISSING])}{more})"
    )


def _down_text(part: Part) -> str:
    if part.kind is PartKind.HOST:
        where = f" at {part.ends[0].name}"
    elif part.kind is PartKind.LINK:
        where = f" ({' to '.join(end.port for end in part.ends)})" if all(end.port for end in part.ends) else ""
    else:
        where = f" ({part.key.id})" if part.seen and part.name != part.key.id else ""
    never = ", declared and never seen," if not part.seen else ""
    is_down = f"{part.kind} {part.name}{where}{never} is down"
    if part.down_since is None:
        return is_down
    return f"{is_down} since {_utc(part.down_since)}"


def _utc(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _ahead_text(switch: str, generation: int) -> str:
    why = f"{switch} has the generation id {generation}, above that of every controller, so it refuses their claims"
    what = f"{why}: restart its Open vSwitch ('systemctl restart openvswitch-switch')"
    if generation < LARGEST_EPOCH:
        raising = f"'signalbox state raise-epoch --config FILE --above {generation}'"
        return f"{what}, or stop all controllers and run {raising} as their user"
    return f"{what}; no controller can have an id above it"


def _table_text(switch: str, use: TableUse, refused: int) -> str:
    _, entries, limit = use
    table = f"table {use.name}" if isinstance(use.table, Table) else f"the table of {use.name.replace('_', ' ')}"
    is_full = refused or use.is_at_least(1)
    known = [] if entries is None else [f"{entries} entries" if limit is None else f"{entries} of {limit} entries"]
    if refused:
        known.append(f"{'1 rule' if refused == 1 else f'{refused} rules'} refused")
    return f"{table} of {switch} is {'full' if is_full else 'nearly full'}: {', '.join(known)}"


def _natural_sort_key(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def _contradiction_text(difference: Difference) -> str:
    """Return a phrase about how the job's traffic contradicts its announcement; "job X" precedes the phrase."""
    what = "traffic" if Finding.OTHER_TRAFFIC in difference.findings else "amounts"
    does = "has stopped sending; before, it sent" if Finding.SILENT in difference.findings else "sends"
    return f"{does} other {what} than it announced: {difference_text(difference)}"


def difference_text(difference: Difference) -> str:
    """Return the contradictions between a job's announcement and its traffic, in words; empty if there are none.

    The text names the first pair of each kind of contradiction."""
    said, undeclared, off = [], difference.undeclared, difference.off
    if difference.backwards:
        said.append("all announced pairs carry traffic in the other direction only")
        opposite = {(dst, src) for (src, dst), _ in off}
        undeclared, off = tuple(one for one in undeclared if one[0] not in opposite), ()
    if undeclared:
        (src, dst), bps = undeclared[0]
        others = _and_more(len(undeclared) - 1)
        said.append(f"{src} > {dst} carries {bps / 1e6:.3g} Mbit/s that are not announced{others}")
    if off and difference.factor is not None:
        said.append(f"all announced pairs carry {_times(difference.factor)}")
    elif off:
        said += _other_amounts(off, difference.relative)
    return "; ".join(said)


def _other_amounts(off: Sequence[tuple[Pair, float]], relative: bool) -> Iterator[str]:
    """Yield a phrase for each kind of pair that differs from the announcement, up to three phrases.

    The kinds are, in this order: pairs that carry nothing, pairs that carry less than announced, and pairs that carry
    more. ``relative``: whether ratios are relative to those of other pairs."""
    for kind in _KINDS:
        ratios = [(pair, ratio) for pair, ratio in off if kind == _kind(ratio)]
        if not ratios:
            continue
        (src, dst), ratio = ratios[0]
        carried, others = _times(ratio), "" if kind == "nothing" else f" with {kind}"
        if relative and kind != "nothing":
            carried, others = f"{kind} of its announced bytes than other pairs do of theirs", ""
        yield f"{src} > {dst} carries {carried}{_and_more(len(ratios) - 1, others)}"


_KINDS = ("nothing", "less", "more")


def _kind(ratio: float) -> str:
    return "nothing" if ratio < NEGLIGIBLE else "less" if ratio < 1 else "more"


def _times(ratio: float) -> str:
    """Return the ratio in words, with two significant digits and without an exponent: 0.47, 2.1, 430."""
    if ratio < NEGLIGIBLE:
        return "nothing"
    digits = max(0, 1 - math.floor(math.log10(ratio)))
    return f"{round(ratio, 1 - math.floor(math.log10(ratio))):,.{digits}f} times what was announced"


def _and_more(count: int, how: str = "") -> str:
    return f" (and {count} more pair{'s' if count > 1 else ''}{how})" if count else ""


_NOUNS = {SwitchRole.LEAF: ("leaf", "leaves"), SwitchRole.SPINE: ("spine", "spines"), None: ("switch", "switches")}

_TEXTS: Mapping[AlarmKind, str] = {
    AlarmKind.PLAN_WORSE_THAN_ECMP: "the plan is worse than ECMP: the worst job's slowdown is {slowdown:.2f} "
    "with the plan, and {ecmp:.2f} on average if switches hash all flows",
    AlarmKind.MASTERSHIP_LOST: "another controller is the master of {subject}, with a newer generation id; Signalbox "
    "does not use the switch",
    AlarmKind.MEMBER_UNLINKED: "member {subject} runs, but has no link to the leader, so other members hold its "
    "switches",
    AlarmKind.SLOT_IGNORED: "job '{subject}' has begun none of its last {iterations} iterations in its slot, so it is "
    "planned without one",
    AlarmKind.DUPLICATE_DPID: "a second switch, at {peer}, has the dpid of {subject} ({dpid:#x}) and is refused",
    AlarmKind.FOREIGN_RULES: "{subject} holds {rules} foreign rules, which Signalbox did not make",
    AlarmKind.LLDP_MALFORMED: "{subject} sends malformed link discovery packets (LLDP), which Signalbox ignores",
    AlarmKind.LLDP_FORGED: "{subject} sends link discovery packets (LLDP) with a wrong signature, which Signalbox "
    "ignores; cause: a host that forges links, or a cable to the fabric of another controller",
    AlarmKind.LLDP_REPLAYED: "{subject} sends link discovery packets (LLDP) that are repeated or too old, which "
    "Signalbox ignores; cause: a host that repeats what it received, or a switch with a long delay",
    AlarmKind.LLDP_REFLECTED: "{subject} receives its own link discovery packets (LLDP), which Signalbox ignores; "
    "cause: a loop, or a host that repeats what it received",
    AlarmKind.PUNT_LIMIT_EXCEEDED: "{port_kind} {subject} sends more to the controller than its limit allows: "
    "{packets} packets dropped in the last {seconds:.0f} s",
    AlarmKind.STATE_NOT_SAVED: "changes of jobs cannot be saved and are refused: {why}",
    AlarmKind.CONNECTIONS_REFUSED: "connections to the OpenFlow port are refused ({subject}), the first of them from "
    "{peer}; the log names the others",
    AlarmKind.SWITCH_FLOODS: "{subject} sends messages faster than the controller reads them: its messages wait, its "
    "port changes are handled slowly, and its foreign rules are ignored",
    AlarmKind.COUNTERS_STALE: "{subject} does not answer requests for counters of {what}; plans use old loads",
    AlarmKind.INTERFACE_DARK: "{subject} {why}",
    AlarmKind.ADDRESSES_CLAIMED: "{subject} claims addresses of hosts at other ports; Signalbox ignores the claims",
}
"""Texts by kind, as format strings for the alarm's subject and facts."""
