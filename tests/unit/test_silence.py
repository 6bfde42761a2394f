"""Silenced alarms: operators silence them until they are over, or for some time."""

from __future__ import annotations

import pytest

from controller.config import Config
from controller.core.messages import Tick
from controller.jobs.messages import DeregisterJob, RegisterJob
from controller.silence import FORGOTTEN_S, MOST, EndSilence, Silence, SilenceAlarms, Silences
from signalbox.errors import InvalidInput, Unavailable
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind
from tests.support.fake_fabric import FakeFabric, ring_job

MISSING = AlarmKind.HOSTS_MISSING


@pytest.fixture
def fabric() -> FakeFabric:
    """Return a fabric where two jobs wait for missing hosts."""
    fabric = FakeFabric()
    fabric.start()
    fabric.run(3)
    for n in range(2):
        announce(fabric, n)
    fabric.run(1)
    assert len(fabric.status.alarms) == 2
    return fabric


def announce(fabric: FakeFabric, n: int) -> None:
    fabric.send(RegisterJob(ring_job(f"job{n}", [f"10.0.1.{n + 1}", f"10.9.9.{n}"], lease_s=36000)))


def say(fabric: FakeFabric, message: SilenceAlarms | EndSilence) -> None:
    fabric.send(message)
    (found,) = [one.value for one in fabric.replies if one.future is message.reply]
    if isinstance(found, Exception):
        raise found


def silenced(fabric: FakeFabric) -> dict[str, str]:
    return {alarm.subject: alarm.silence.comment for alarm in fabric.status.alarms.values() if alarm.silence}


def at(fabric: FakeFabric, unix_s: float) -> None:
    """Advance the time to ``unix_s`` (Unix time in seconds), and update the alarms."""
    fabric.send(Tick(unix_s))
    assert fabric.status
    fabric.send(Tick(unix_s))


def test_an_acknowledged_alarm_stays_and_says_so_until_it_is_over(fabric: FakeFabric) -> None:
    say(fabric, SilenceAlarms(Silence(MISSING, "job0", 1e9, None, "ann", "known")))
    assert silenced(fabric) == {"job0": "known"}
    fabric.send(DeregisterJob(JobId("job0")))
    assert [alarm.subject for alarm in fabric.status.alarms.values()] == ["job1"]
    announce(fabric, 0)
    assert len(fabric.status.alarms) == 2
    assert silenced(fabric) == {}
    fabric.run(1)
    assert fabric.saved.silences == {}


def test_a_silence_of_a_kind_holds_for_alarms_that_come_later_until_its_time_is_over(fabric: FakeFabric) -> None:
    at(fabric, 1e9)
    say(fabric, SilenceAlarms(Silence(MISSING, "", 1e9, 1e9 + 60, "", "all")))
    announce(fabric, 2)
    assert silenced(fabric) == dict.fromkeys(("job0", "job1", "job2"), "all")
    say(fabric, SilenceAlarms(Silence(MISSING, "job1", 1e9, None, "", "mine")))
    assert silenced(fabric)["job1"] == "mine", "its own comes first"
    at(fabric, 1e9 + 61)
    assert silenced(fabric) == {"job1": "mine"}
    assert list(fabric.saved.silences) == [(MISSING, "job1")]


def test_a_silence_holds_over_a_restart_before_its_alarm_is_raised_again(fabric: FakeFabric) -> None:
    say(fabric, SilenceAlarms(Silence(MISSING, "job0", 1e9, None, "", "known")))
    fabric.start()
    at(fabric, 2e9)
    assert not fabric.status.alarms
    fabric.run(Config().discovery.adoption_patience_s + 1)
    assert silenced(fabric) == {"job0": "known"}


def test_one_whose_alarm_does_not_come_back_is_forgotten(fabric: FakeFabric) -> None:
    say(fabric, SilenceAlarms(Silence(AlarmKind.FOREIGN_RULES, "leaf1", 1e9, None)))
    fabric.start()
    at(fabric, 2e9)
    assert fabric.loop.state.silences.of
    at(fabric, 2e9 + FORGOTTEN_S + 1)
    assert not fabric.loop.state.silences.of


def test_a_silence_is_ended_by_what_it_was_made_for(fabric: FakeFabric) -> None:
    say(fabric, SilenceAlarms(Silence(MISSING, "job0", 1e9)))
    with pytest.raises(InvalidInput, match="subject: no silence of hosts_missing exists for all alarms of this kind"):
        say(fabric, EndSilence((MISSING, "")))
    say(fabric, EndSilence((MISSING, "job0")))
    assert silenced(fabric) == {}


def test_what_cannot_be_saved_silences_nothing(fabric: FakeFabric) -> None:
    fabric.disk_error = "the disk is full"
    with pytest.raises(Unavailable, match="the change cannot be saved"):
        say(fabric, SilenceAlarms(Silence(MISSING, "job0", 1e9)))
    assert silenced(fabric) == {}


def test_silences_have_a_limit_and_one_that_there_is_can_be_said_anew() -> None:
    silences = Silences({})
    for n in range(MOST):
        silences.add(Silence(MISSING, f"job{n}", 1.0))
    silences.add(Silence(MISSING, "job0", 2.0))
    assert silences.of[MISSING, "job0"].since == 2.0
    with pytest.raises(InvalidInput, match=f"there are {MOST} silences already"):
        silences.add(Silence(MISSING, "another", 1.0))
