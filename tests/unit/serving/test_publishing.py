from concurrent.futures import Future

from controller.core.messages import Command, Message, Reply, Tick
from controller.fabric.messages import LinkLost
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.serving.publishing import PUBLISH_COUNTERS_S, PUBLISH_ROUTES_S, PUBLISH_S, Publishing
from controller.tables.messages import Counters, ReadRules

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
