from controller.core.messages import Tick
from controller.serving.inbox import Inbox
from controller.southbound.limits import Backlog


def test_messages_come_in_order_and_no_more_than_asked_for() -> None:
    inbox = Inbox()
    ticks = [Tick(float(number)) for number in range(5)]
    for tick in ticks:
        inbox.put(tick)
    assert inbox.take(3, 0.0) == ticks[:3]
    assert inbox.take(3, 0.0) == ticks[3:]
    assert inbox.take(3, 0.0) == []


def test_what_was_not_taken_is_counted_for_each_connection() -> None:
    inbox, one, other = Inbox(), Backlog(), Backlog()
    for backlog in (one, None, other, one):
        inbox.put(Tick(0.0), backlog)
    assert (one.waiting, other.waiting) == (2, 1)
    inbox.take(2, 0.0)
    assert (one.waiting, other.waiting) == (1, 1)
    inbox.take(2, -1.0)
    assert (one.waiting, other.waiting) == (0, 0)
