"""The relay of ``benchmarks faults``: it passes everything, and on request holds back answers with port counters."""

from __future__ import annotations

import socket
import struct

from benchmarks.live.relay import openflow_relay
from benchmarks.openflow_bytes import Multipart, Type, message


def answer(kind: Multipart) -> bytes:
    return message(Type.MULTIPART_REPLY, 1, struct.pack("!HH4x", kind, 0))


def test_only_answers_with_port_counters_are_dropped_and_only_when_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as switch:
        listener.settimeout(60)
        with openflow_relay(listener.getsockname()[1]) as between:
            switch.connect(("127.0.0.1", between.port))
            controller, _ = listener.accept()
            with controller, controller.makefile("rb") as heard:
                controller.settimeout(60)
                sent = [answer(Multipart.PORT_STATS), answer(Multipart.FLOW), message(Type.HELLO, 2)]
                for drops, passed in ((False, sent), (True, sent[1:]), (False, sent)):
                    between.drops_ports = drops
                    switch.sendall(b"".join(sent))
                    assert heard.read(sum(map(len, passed))) == b"".join(passed)
                controller.sendall(message(Type.PORT_STATUS, 3))
                switch.settimeout(60)
                assert switch.recv(100) == message(Type.PORT_STATUS, 3)
