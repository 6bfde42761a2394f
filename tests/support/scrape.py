"""Metrics of a status, as a scrape of Prometheus gets them."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from controller.observability.exposition import Exposition
from controller.shared_map import FEW_SECONDS, Histogram
from controller.status import Status, StatusBoard
from tests.support.known_members import only_member


def exposition(status: Status, now: float = 104.0) -> str:
    board = StatusBoard()
    board.publish(status)
    board.certificates_end = {"api": 1.8e9}
    board.membership = only_member()
    board.call_times = {("RegisterJob", "OK"): Histogram(FEW_SECONDS).observed(0.004, 0.2, 30.0)}
    return Exposition(board, clock=lambda: now).text()


class Scrape:
    def __init__(self, text: str) -> None:
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        self.names = {sample.name for sample in self.samples}

    def series(self, name: str) -> list[Mapping[str, str]]:
        return [sample.labels for sample in self.samples if sample.name == name]

    def value(self, name: str, **labels: str) -> float:
        found = [s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()]
        assert len(found) == 1, f"{name}{labels}: {found}"
        return found[0]
