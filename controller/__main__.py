"""``python -m controller`` is the ``signalbox`` command."""

from signalbox.__main__ import main

if __name__ == "__main__":
    main()
