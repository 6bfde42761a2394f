"""The thread of the control loop: its messages, the times of a status, and the times of garbage collections."""

import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from controller.core.messages import Command, Message, Reply, Tick
from controller.fabric.messages import LinkLost, SwitchFloods
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.serving.garbage import ALL_EVERY_S, MANY, SETTLE_S, THRESHOLDS, Garbage, loading
from controller.serving.inbox import Inbox
from controller.serving.publishing import PUBLISH_COUNTERS_S, PUBLISH_ROUTES_S, PUBLISH_S, Publishing
from controller.southbound.limits import Backlog
from controller.tables.messages import Counters, ReadRules


class Knot:
    """Object that refers to itself, so only a garbage collection frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Restore the settings of the garbage collector, which belong to the process.

    Imported modules stay exempt from collections, which would otherwise take half a second each."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.enable()


def knot() -> weakref.ref[Knot]:
    return weakref.ref(Knot())


def test_nothing_is_collected_while_a_state_is_loaded_and_what_was_loaded_is_old() -> None:
    with loading():
        assert not gc.isenabled()
        left = knot()
    assert gc.isenabled()
    gc.collect()
    assert left(), "it is not looked at again"
    with pytest.raises(ValueError, match="damaged"), loading():
        raise ValueError("damaged")
    assert gc.isenabled(), "also when the state cannot be loaded"


def test_quiet_moments_collect_what_is_new_if_that_is_not_much_and_later_everything() -> None:
    """A quiet moment shortly after another quiet moment causes no collection."""
    with loading():
        old = knot()
    garbage, new = Garbage(), knot()
    garbage.quiet(0.0)
    assert (old() is None, new() is None) == (False, True)
    gc.disable()
    left = knot()
    garbage.quiet(SETTLE_S - 1)
    assert left()
    garbage.quiet(SETTLE_S)
    assert left() is None
    gc.enable()
    much = [[number] for number in range(2 * MANY * THRESHOLDS[0])]
    gc.disable()
    left = knot()
    garbage.quiet(2 * SETTLE_S)
    assert left(), "too much to look through becomes old as it is"
    assert old()
    garbage.quiet(ALL_EVERY_S)
    assert old() is left() is None
    assert much


ROUTES, OTHERS = object(), object()
HERE = PortRef(Dpid(1), PortNo(1))
NEWS = LinkLost(HERE, HERE)
COUNTERS = Counters(Dpid(1), 1.0, {}, {})


def due_after(told: object, messages: tuple[Message, ...] = (), commands: tuple[Command, ...] = ()) -> float:
    """Return the seconds, in steps of 0.01, from a status with ``ROUTES`` until the next status is due."""
    publishing = Publishing()
    publishing.done(ROUTES, 100.0)
    publishing.note(messages, commands)
    publishing.note([Tick()], [])
    return next(step / 100 for step in range(200) if publishing.is_due(told, 100.0 + (step + 0.5) / 100))


def test_a_status_follows_soon_on_what_has_happened_and_rarely_on_counters() -> None:
    assert due_after(ROUTES) == due_after(ROUTES, (COUNTERS,)) == PUBLISH_COUNTERS_S
    assert due_after(ROUTES, commands=(Reply(Future(), 1, after_status=False),)) == PUBLISH_COUNTERS_S
    assert due_after(ROUTES, (COUNTERS, NEWS)) == PUBLISH_S
    assert due_after(ROUTES, commands=(ReadRules(Dpid(1)),)) == PUBLISH_S


def test_routes_that_jobs_are_told_do_not_wait_whatever_they_follow_from() -> None:
    assert due_after(OTHERS) == due_after(OTHERS, (COUNTERS,)) == due_after(OTHERS, (NEWS,)) == PUBLISH_ROUTES_S


def test_a_status_with_the_routes_is_enough() -> None:
    publishing = Publishing()
    publishing.done(ROUTES, 100.0)
    publishing.note([NEWS], [])
    publishing.done(OTHERS, 100.2)
    assert not publishing.is_due(OTHERS, 100.6)


def test_messages_come_in_order_and_no_more_than_asked_for() -> None:
    inbox = Inbox()
    ticks = [Tick(float(number)) for number in range(5)]
    for tick in ticks:
        inbox.put(tick)
    assert inbox.take(3, 0.0) == ticks[:3]
    assert inbox.take(3, 0.0) == ticks[3:]
    assert inbox.take(3, 0.0) == []


def test_requests_do_not_wait_for_messages_of_switches_and_leave_half_of_the_places_to_them() -> None:
    inbox, floods, ticks = Inbox(), [SwitchFloods(Dpid(n)) for n in range(5)], [Tick(float(n)) for n in range(3)]
    for flood in floods:
        inbox.put(flood)
    for tick in ticks:
        inbox.put(tick)
    assert inbox.take(4, 0.0) == [*ticks[:2], *floods[:2]]
    assert inbox.take(9, 0.0) == [ticks[2], *floods[2:]]


def test_what_was_not_taken_is_counted_for_each_connection() -> None:
    inbox, one, other = Inbox(), Backlog(), Backlog()
    for backlog in (one, None, other, one):
        inbox.put(SwitchFloods(Dpid(1)), backlog)
    assert (one.waiting, other.waiting) == (2, 1)
    inbox.take(2, 0.0)
    assert (one.waiting, other.waiting) == (1, 1)
    inbox.take(2, -1.0)
    assert (one.waiting, other.waiting) == (0, 0)
