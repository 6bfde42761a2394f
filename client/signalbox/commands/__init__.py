"""The commands of ``signalbox`` that ask a controller, and how they show what they found.

One module per group of commands. ``connecting`` has the options that all share, ``output`` prints tables, JSON and
YAML, ``printing`` and ``tables`` make the tables, ``naming`` completes names. ``run`` is imported alone for
``signalbox run``, so that its command starts at once.
"""
