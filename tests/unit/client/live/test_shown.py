"""Figures and messages of the API in words."""

import pytest

from signalbox.live.jobs import traffic_lines, traffic_mark
from signalbox.live.shown import rate
from signalbox.v1 import signalbox_pb2 as pb


@pytest.mark.parametrize(("bps", "said"), [
    (0.0, "0 bit/s"), (999.6, "1 kbit/s"), (4.886e6, "4.89 Mbit/s"), (999.4e6, "999 Mbit/s"), (999.6e6, "1 Gbit/s"),
    (800e9, "800 Gbit/s"), (1.6e12, "1.6 Tbit/s"),
])  # fmt: skip
def test_a_rate_has_three_digits_and_never_an_exponent(bps: float, said: str) -> None:
    assert rate(bps) == said


HALF = pb.Demand(source=pb.DEMAND_SOURCE_MEASURED, findings=[pb.DEMAND_FINDING_OTHER_AMOUNTS], factor=2.0)
HALF.difference = "all announced pairs carry 2.0 times what was announced"
DECLARED, CONFIRMED = (pb.Demand(source=source) for source in (pb.DEMAND_SOURCE_DECLARED, pb.DEMAND_SOURCE_CONFIRMED))
SILENT = pb.Demand(source=pb.DEMAND_SOURCE_CONFIRMED, findings=[pb.DEMAND_FINDING_SILENT])


IMPOSSIBLE = "it announced too much, or reports its iterations as too short."
CHANGES = pb.Demand(source=pb.DEMAND_SOURCE_CONFIRMED, patterns=2, pattern=1)
PROVISIONAL = pb.Demand(source=pb.DEMAND_SOURCE_PROVISIONAL)


@pytest.mark.parametrize(("job", "mark", "lines"), [
    (pb.Job(), "", []),
    (pb.Job(demand=CONFIRMED, efficiency_measured=0.97), "", []),
    (pb.Job(demand=SILENT), "", ["It sends nothing now."]),
    (pb.Job(demand=CHANGES), "", ["It changes between 2 traffic patterns, and sends number 1 now."]),
    (pb.Job(demand=DECLARED, efficiency_measured=0.97), " ?",
     ["It is planned for what it announced, not yet confirmed by counters."]),
    (pb.Job(demand=PROVISIONAL), " ?",
     ["It is planned for pairs that send, with bytes that are not yet confirmed by counters."]),
    (pb.Job(demand=HALF), " !", [f"Its announcement is wrong: {HALF.difference}.",
                                 "It is planned for what switches count."]),
    (pb.Job(demand=CONFIRMED, efficiency_measured=1.62), " !",
     [f"Its measured efficiency, 162%, is not possible: {IMPOSSIBLE}"]),
])  # fmt: skip
def test_sentences_say_what_the_mark_of_a_job_means_and_what_is_remarkable_otherwise(
    job: pb.Job, mark: str, lines: list[str]
) -> None:
    assert traffic_mark(job) == mark
    assert traffic_lines(job) == lines
