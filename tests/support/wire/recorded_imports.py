"""``signalbox serve`` with a record of the modules that its other threads import while it serves.

    python -m tests.support.wire.recorded_imports FILE OPTIONS

Output: the file, with a line per import outside the main thread: the name of the thread, and the module."""

import sys
import threading
from typing import Any

from signalbox.__main__ import main

if __name__ == "__main__":
    out = open(sys.argv.pop(1), "a", buffering=1)  # noqa: SIM115

    def record(event: str, details: tuple[Any, ...]) -> None:
        if event == "import" and threading.current_thread() is not threading.main_thread():
            out.write(f"{threading.current_thread().name} {details[0]}\n")

    sys.addaudithook(record)
    sys.argv.insert(1, "serve")
    main()
