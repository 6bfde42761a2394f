"""``python -m controller`` is the ``signalbox`` command."""

from controller.cli import main

main()
