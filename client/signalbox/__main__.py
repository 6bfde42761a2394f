"""The ``signalbox`` command."""

import gc
import os
import sys


def main() -> None:
    """Ctrl-C ends it quietly even while libraries are still being imported."""
    try:
        gc.disable()  # modules stay: a tenth of the time that their import takes goes into looking through them
        if sys.argv[1:2] == ["run"]:  # what it starts does not wait for the imports of other commands
            from signalbox.commands.run import main as signalbox
        else:
            # gRPC's core writes lines of its own to stderr, as many as a client of the controller likes. It reads this
            # when it is imported. What ``run`` starts may use gRPC as well, and keeps these lines.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
            from signalbox.cli import main as signalbox

        gc.freeze()
        gc.enable()
        signalbox()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
