"""The ``signalbox`` command."""

import gc
import sys


def main() -> None:
    """Ctrl-C ends it quietly even while libraries are still being imported."""
    try:
        gc.disable()  # modules stay: a tenth of the time that their import takes goes into looking through them
        if sys.argv[1:2] == ["run"]:  # what it starts does not wait for the imports of other commands
            from signalbox.commands.run import main as signalbox
        else:
            from signalbox.cli import main as signalbox

        gc.freeze()
        gc.enable()
        signalbox()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
