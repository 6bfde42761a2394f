"""The rule changes that switches receive from controllers."""

import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from mininet_topos.lab.lab import Lab


class Snoop:
    def __init__(self, lab: Lab, folder: Path) -> None:
        self._files = {lab.bridge(switch.name): folder / f"{lab.bridge(switch.name)}.snoop" for switch in lab.switches}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for bridge, path in self._files.items():
            file = self._stack.enter_context(path.open("w"))
            argv = ["ovs-ofctl", "-O", "OpenFlow13", "snoop", bridge]
            process = self._stack.enter_context(subprocess.Popen(argv, stdout=file, stderr=file))
            self._stack.callback(process.terminate)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def count(self, kind: str) -> int:
        return len(self.messages(kind))

    def messages(self, kind: str) -> list[str]:
        """Return the first line of each message that begins with the pattern ``kind``, with its bridge."""
        lines = ((bridge, line) for bridge, path in self._files.items() for line in path.read_text().splitlines())
        return [f"{bridge}: {line}" for bridge, line in lines if re.match(kind, line)]
