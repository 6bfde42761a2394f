from __future__ import annotations

import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from controller.fabric.topology import Dpid
from controller.southbound.framework import CHOICE, MAIN_DISPATCHER, chosen, ofp_event, on, wait_readable
from controller.southbound.openflow_framing import Malformed
from controller.southbound.outbox import Outbox
from controller.tables.messages import ReadRules
from signalbox.errors import InvalidInput
from tests.support.waiting import DEADLINE_S

NO_COPIES = """
import sys
import controller.southbound.framework
import http.client, http.server, socketserver, urllib.request
from eventlet import patcher

for module in ("socket", "thread", "time", "select", "os", "subprocess"):
    if patcher.is_monkey_patched(module):
        print(module, "is patched")
for name, module in list(sys.modules.items()):
    package, _, last = name.rpartition(".")
    if name.split(".")[0] in sys.stdlib_module_names:
        if package in sys.modules and getattr(sys.modules[package], last, module) is not module:
            print(name, "is a copy")
        of_others = [each for each in vars(module).values() if getattr(each, "__name__", "").startswith("eventlet")]
        if of_others:
            print(name, "has", of_others)
"""


def test_importing_ryu_patches_nothing_and_leaves_no_copies_in_the_place_of_modules_of_the_standard_library() -> None:
    """Threaded servers that use a copy of a module never answer."""
    done = subprocess.run([sys.executable, "-c", NO_COPIES], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize(("wanted", "runs"), [("ryu", "ryu"), ("os_ken", "os_ken"), ("", "ryu")])
def test_the_environment_chooses_the_framework_and_ryu_is_the_default(
    monkeypatch: pytest.MonkeyPatch, wanted: str, runs: str
) -> None:
    monkeypatch.setenv(CHOICE, wanted)
    assert chosen() == runs
    monkeypatch.setenv(CHOICE, "pox")
    with pytest.raises(InvalidInput, match="SIGNALBOX_OPENFLOW: must be ryu or os_ken, not 'pox'"):
        chosen()


def test_a_handler_lets_malformed_messages_pass_through_and_other_errors_end_the_process() -> None:
    failed: list[Exception] = []

    class App:
        outbox = SimpleNamespace(fail=failed.append)

        @on(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
        def handle(self, error: Exception) -> None:
            raise error

    fault = KeyError("a fault")
    App().handle(fault)
    with pytest.raises(Malformed, match="too short"):
        App().handle(Malformed("too short"))
    assert failed == [fault]


def test_commands_of_other_threads_arrive_in_their_order_and_stop_ends_the_waiting() -> None:
    outbox = Outbox()
    total = 5_000
    received: list[int] = []

    def produce() -> None:
        for number in range(total):
            outbox.send([ReadRules(Dpid(number))])

    producer = threading.Thread(target=produce)
    producer.start()
    for command in outbox.receive(wait_readable):
        assert isinstance(command, ReadRules)
        received.append(command.dpid)
        if len(received) == total:
            outbox.stop()
    producer.join()
    outbox.close()
    assert received == list(range(total))


def test_a_stop_from_another_thread_wakes_a_hub_that_waits() -> None:
    outbox = Outbox()
    waits = threading.Event()

    def wait(wakes: socket.socket) -> None:
        waits.set()
        wait_readable(wakes)

    def stop() -> None:
        assert waits.wait(DEADLINE_S)
        outbox.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    assert list(outbox.receive(wait)) == []
    stopper.join()
    outbox.close()


def test_a_failure_drops_queued_commands_and_is_raised() -> None:
    outbox = Outbox()
    outbox.send([ReadRules(Dpid(1))])
    outbox.fail(RuntimeError("first"))
    outbox.fail(RuntimeError("second"))
    with pytest.raises(RuntimeError, match="first"):
        list(outbox.receive(wait_readable))
    outbox.close()
    outbox.send([ReadRules(Dpid(1))])  # after the end, commands are dropped
    outbox.stop()
