"""Commands of ``signalbox`` that call a controller, and how they print the answers. One module per group of commands.

``connecting`` has the shared options and names, ``output`` prints tables, JSON and YAML, ``printing`` makes the tables.
``signalbox run`` imports the module ``run`` alone, so that its command starts at once.
"""
