"""Repeated work in a thread."""

import threading

from signalbox.rounds import Rounds

DEADLINE_S = 60.0


def test_an_end_just_before_a_round_is_not_missed() -> None:
    """A round that begins just after the end is the last one, however long the pause after it."""
    made: list[str] = []

    def one() -> float:
        made.append("round")
        return DEADLINE_S

    rounds = Rounds("rounds", one, lambda: made.append("last"))

    class Due(threading.Event):
        def clear(self) -> None:
            rounds.leave()
            super().clear()

    rounds._due = Due()
    rounds.start()
    rounds.join(DEADLINE_S / 2)
    assert made == ["round", "last"]
