"""What the relay process tells the API's thread arrives, however much or long it is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from controller.api.relay import channel
from controller.api.relay.accepting import Accepting, Pace
from controller.api.relay.channel import Accepted, Channel, Failed, FromProcess, Gone, Pong, Refused, ToProcess

DEADLINE_S = 60.0


def test_more_than_the_channel_holds_arrives_in_order_again_and_again_also_with_the_longest_names() -> None:
    client = f"unix:{'x' * 107} user {2**32 - 2}"
    told: list[FromProcess] = []
    for number in range(5000):
        told += [Accepted(number, client, f"{client} process {number}"), Refused("tls", client, "why"), Gone(number)]

    async def run() -> None:
        near, far = channel.pair()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        got: list[FromProcess] = []
        sending: Channel[FromProcess, ToProcess] = Channel(near, lambda _: None, lambda: None)
        reading: Channel[ToProcess, FromProcess] = Channel(far, got.append, lambda: None)
        for times in (1, 2):
            for message in told:
                sending.send(message)
            assert sending.is_behind
            async with asyncio.timeout(DEADLINE_S):
                while len(got) < times * len(told):
                    await asyncio.sleep(0)
            assert got == times * told
        sending.close()
        reading.close()

    asyncio.run(run())


def test_a_fault_with_a_long_text_does_not_hold_up_what_follows() -> None:
    async def run() -> Sequence[FromProcess]:
        near, far = channel.pair()
        got: list[FromProcess] = []
        process = Accepting(Pace(1e9, 800.0, 1000.0, 10, 10.0), "test/")
        process._channel = Channel(near, lambda _: None, lambda: None)
        reading: Channel[ToProcess, FromProcess] = Channel(far, got.append, lambda: None)
        process._failed(asyncio.get_running_loop(), {"message": "x" * 1_000_000})
        await asyncio.sleep(0)
        process._channel.send(Pong())
        async with asyncio.timeout(DEADLINE_S):
            while len(got) < 2:
                await asyncio.sleep(0)
        process._channel.close()
        reading.close()
        return got

    failed, pong = asyncio.run(run())
    assert isinstance(failed, Failed)
    assert failed.why.startswith("xxx")
    assert pong == Pong()
