"""``python -m controller`` is the ``signalbox`` command."""

import sys


def main() -> None:
    """Ctrl-C ends it quietly even while libraries are still being imported."""
    try:
        from controller.cli import main as signalbox

        signalbox()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
