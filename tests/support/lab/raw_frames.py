"""Raw Ethernet frames from inside a host's namespace, as an attacker with root on the host can send them.

python raw_frames.py listen INTERFACE SECONDS          writes each received LLDP frame, in hexadecimal
python raw_frames.py send INTERFACE RATE SECONDS       sends the frames of stdin (hexadecimal, one per line) in turn

With RATE 0 each frame is sent once. ``send`` writes the number of frames and the seconds that they took."""

import socket
import sys
import time
from collections.abc import Iterator
from itertools import cycle

ETH_LLDP = 0x88CC
OUTGOING = 4  # packet(7), PACKET_OUTGOING
BATCH = 20


def listen(interface: str, seconds: float) -> Iterator[bytes]:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_LLDP)) as raw:
        raw.bind((interface, ETH_LLDP))
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            raw.settimeout(left)
            try:
                frame, (_, _, kind, *_) = raw.recvfrom(2048)
            except TimeoutError:
                return
            if kind != OUTGOING:
                yield frame


def send(interface: str, rate: float, seconds: float, frames: list[bytes]) -> tuple[int, float]:
    """Send the frames in batches at ``rate`` frames per second; a late batch is followed by the next one at once.

    Returns the number of frames and the seconds that they took."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((interface, 0))
        start = time.monotonic()
        if not rate:
            return sum(raw.send(frame) > 0 for frame in frames), time.monotonic() - start
        turn, sent = cycle(frames), 0
        while (now := time.monotonic() - start) < seconds:
            if now < sent / rate:
                time.sleep(sent / rate - now)
            for _ in range(BATCH):
                raw.send(next(turn))
            sent += BATCH
        return sent, time.monotonic() - start


def main() -> None:
    command, interface, *numbers = sys.argv[1:]
    if command == "listen":
        for frame in listen(interface, float(numbers[0])):
            sys.stdout.write(frame.hex() + "\n")
            sys.stdout.flush()
    else:
        rate, seconds = map(float, numbers)
        sent, took = send(interface, rate, seconds, [bytes.fromhex(line) for line in sys.stdin])
        sys.stdout.write(f"{sent} {took}\n")


if __name__ == "__main__":
    main()
