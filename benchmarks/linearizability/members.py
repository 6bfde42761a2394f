"""Two controllers on one etcd, one of them active, and the faults that strike while clients call them."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mininet_topos.controller_process import ControllerProcess, Settings
from mininet_topos.lab.record import wait_for
from signalbox.client import Client
from signalbox.errors import SignalboxError
from tests.support.wire.etcd import EtcdProcess

LEASE_S = 2
MEMBERS = 2
WITHIN_S = 60.0
ANSWER_S = 0.5
STANDING_BY, READY = b'"event": "standing by"', b'"event": "ready"'

Middle = Callable[[], None]
"""Function that returns when the clients have made half of their calls during a fault."""


class Members:
    """Members with their folders below ``folder``; ``heal`` starts those that do not run."""

    def __init__(self, folder: Path, etcd: EtcdProcess) -> None:
        self._etcd = etcd
        self._all = []
        for number in range(MEMBERS):
            own = folder / str(number)
            own.mkdir(parents=True)
            settings: Settings = {
                "etcd": {"prefix": f"/{folder.name}/", "lease_s": LEASE_S},
                "members": {"name": str(number), "api": f"unix:{own}/members.sock"},
                "log": {"json_lines": True},
            }
            self._all.append(ControllerProcess(own, settings=settings, store=f"etcd://{etcd.endpoint}"))
        self._log_begins = [0] * MEMBERS
        """Size of each log when its process started."""

    @property
    def sockets(self) -> list[str]:
        return [str(each.folder / "api.sock") for each in self._all]

    def heal(self) -> int:
        """Return the number of the active member, when it answers and all others stand by. Raises ``SignalboxError``.

        Members that do not run are started."""
        wait_for(self._is_healed, "one active member and its standby", WITHIN_S)
        return self._numbers_with(READY)[0]

    def _is_healed(self) -> bool:
        for number, each in enumerate(self._all):
            if each.process is None or each.process.poll() is not None:
                self._log_begins[number] = each.log.stat().st_size if each.log.exists() else 0
                each.start("--standby")
        active = self._numbers_with(READY)
        standing = [number for number in self._numbers_with(STANDING_BY) if number not in active]
        return len(active) == 1 and len(standing) == MEMBERS - 1 and _answers(self._all[active[0]])

    def _numbers_with(self, event: bytes) -> list[int]:
        """Return the members whose log has the event since their start."""
        begins = zip(self._all, self._log_begins, strict=True)
        return [number for number, (each, begin) in enumerate(begins) if event in each.log.read_bytes()[begin:]]

    def stop(self) -> None:
        for each in self._all:
            each.kill()

    # ---- faults, each on the active member or on etcd

    def kill(self, active: int, _: random.Random, middle: Middle) -> None:
        self._all[active].kill()
        middle()

    def pause(self, active: int, _: random.Random, middle: Middle) -> None:
        """Pause the member until another one is active, and has answered calls."""
        self._signal(active, signal.SIGSTOP)
        middle()
        self._signal(active, signal.SIGCONT)

    def pause_shortly(self, active: int, dice: random.Random, _: Middle) -> None:
        """Pause the member for less or a little more than its lease."""
        self._signal(active, signal.SIGSTOP)
        time.sleep(dice.uniform(0.1, 1.2 * LEASE_S))
        self._signal(active, signal.SIGCONT)

    def pause_etcd(self, _active: int, dice: random.Random, _: Middle) -> None:
        self._etcd.signal(signal.SIGSTOP)
        time.sleep(dice.uniform(0.1, 2 * LEASE_S))
        self._etcd.signal(signal.SIGCONT)

    def kill_during_pause_of_etcd(self, active: int, dice: random.Random, _: Middle) -> None:
        """Kill the member while etcd has requests that it may carry out later."""
        self._etcd.signal(signal.SIGSTOP)
        time.sleep(dice.uniform(0.1, LEASE_S))
        self._all[active].kill()
        self._etcd.signal(signal.SIGCONT)

    def _signal(self, number: int, what: signal.Signals) -> None:
        process = self._all[number].process
        assert process
        process.send_signal(what)


Fault = Callable[[Members, int, random.Random, Middle], None]

FAULTS: Mapping[str, Fault] = {
    "kill": Members.kill,
    "pause": Members.pause,
    "short pause": Members.pause_shortly,
    "pause of etcd": Members.pause_etcd,
    "kill while etcd pauses": Members.kill_during_pause_of_etcd,
}


def _answers(member: ControllerProcess) -> bool:
    try:
        with Client(member.address, timeout_s=ANSWER_S) as client:
            client.get_status()
    except SignalboxError:
        return False
    return True


@contextmanager
def running(folder: Path, etcd: EtcdProcess) -> Iterator[Members]:
    members = Members(folder, etcd)
    try:
        members.heal()
        yield members
    finally:
        members.stop()
