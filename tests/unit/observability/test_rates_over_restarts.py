"""The rate() of Prometheus for a link's bytes while the controller or a switch restarts, or does not answer."""

from pathlib import Path

import pytest

from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.observability.exposition import Exposition
from controller.status import StatusBoard
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric
from tests.support.recorded_series import Recorded
from tests.support.three_rings import CONFIG, started

UPLINK = PortRef(Dpid(1), PortNo(1))
SCRAPE_S = 5
POLL_S = 2
LINK = 'link="leaf1:1>spine1"'
CAPACITY = f"signalbox_link_capacity_bytes_per_second{{{LINK}}}"
MOST = f"max_over_time((rate(signalbox_link_bytes_total{{{LINK}}}[1m]) / on(link) {CAPACITY})[10m:1s])"

LEAST = MOST.replace("max_over_time", "min_over_time")
NO_JUMP = f"{MOST} <= bool 1.1"
LONG = [pytest.param(seconds, marks=pytest.mark.long) for seconds in (0, 6, 50, 150)]
RESETS = f"resets(signalbox_link_bytes_total{{{LINK}}}[10m])"


class Scraped(FakeFabric):
    """Fabric with a link that is always full.

    ``zero_at``: time in seconds when the port counter of the link was zero.
    ``is_heard``: whether the switch of the link answers."""

    def __init__(self) -> None:
        super().__init__(2, 2, 1)
        self.recorded = Recorded(SCRAPE_S, "signalbox_link_bytes_total", "signalbox_link_capacity_bytes_per_second")
        self.zero_at = self.now - 1e6
        self.is_up = self.is_heard = True

    def pass_time(self, seconds: int) -> None:
        for second in range(1, seconds + 1):
            self.run(1)
            if self.is_up and self.is_heard and second % POLL_S == 0:
                self.count({UPLINK: int((self.now - self.zero_at) * FABRIC_BPS / 8)}, {})
            if second % SCRAPE_S == 0:
                self.recorded.scrape(self._exposition() if self.is_up else None)

    def _exposition(self) -> str:
        board = StatusBoard()
        board.publish(self.status)
        return Exposition(board, clock=lambda: self.now).text()


@pytest.fixture
def fabric() -> Scraped:
    fabric = started(Scraped())
    fabric.pass_time(120)
    return fabric


@pytest.mark.parametrize("down_s", [120, *LONG[0:2]])
def test_a_restart_of_the_controller_is_no_reset_and_no_jump(fabric: Scraped, tmp_path: Path, down_s: int) -> None:
    fabric.is_up = False
    fabric.pass_time(down_s)
    fabric.start(CONFIG)
    fabric.run(3)
    fabric.recorded.scrape(fabric._exposition())
    fabric.is_up = True
    fabric.pass_time(120)
    fabric.recorded.assert_hold(tmp_path, NO_JUMP, f"{MOST} > bool 0.9", f"{RESETS} == bool 0")


def test_a_switch_that_counts_anew_is_a_reset_and_no_jump(fabric: Scraped, tmp_path: Path) -> None:
    fabric.lose(UPLINK.dpid)
    fabric.run(2)
    fabric.zero_at = fabric.now
    fabric.connect(UPLINK.dpid)
    fabric.pass_time(120)
    fabric.recorded.assert_hold(tmp_path, f"{RESETS} == bool 1", NO_JUMP)


@pytest.mark.parametrize("silent_s", [150, *LONG[1:3]])
def test_counters_that_are_not_answered_are_unknown_not_a_jump(fabric: Scraped, tmp_path: Path, silent_s: int) -> None:
    fabric.is_heard = False
    fabric.pass_time(silent_s)
    fabric.is_heard = True
    fabric.pass_time(120)
    fabric.recorded.assert_hold(tmp_path, NO_JUMP, f"{LEAST} > bool 0")


@pytest.mark.parametrize("away_s", [6, *LONG[2:4]])
def test_a_switch_that_goes_on_without_its_connection_is_no_jump(fabric: Scraped, tmp_path: Path, away_s: int) -> None:
    fabric.is_heard = False
    fabric.lose(UPLINK.dpid)
    fabric.pass_time(away_s)
    fabric.connect(UPLINK.dpid)
    fabric.pass_time(5)
    fabric.is_heard = True
    fabric.pass_time(120)
    fabric.recorded.assert_hold(tmp_path, NO_JUMP, f"{RESETS} == bool 0")


def test_the_check_finds_a_zero_before_the_first_sample(fabric: Scraped, tmp_path: Path) -> None:
    zero = f'signalbox_link_bytes_total{{{LINK},src="leaf1",dst="spine1",kind="fabric"}} 0\n'
    fabric.recorded.scrape("# TYPE signalbox_link_bytes_total counter\n" + zero)
    fabric.pass_time(60)
    with pytest.raises(AssertionError, match="expr"):
        fabric.recorded.assert_hold(tmp_path, NO_JUMP)
