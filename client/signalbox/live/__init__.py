"""Live state of a controller, and its description in words and pictures, as plain data; nothing here draws.

Messages of the API become one ``State``, which ``web``, ``top``, ``report`` and the commands show.

- ``state``: the state; ``following``: the threads that keep it up to date
- ``picture``: the fabric as a picture
- ``jobs``: jobs in words; ``rows``: rows of tables, and sentences for events; ``shown``: all other words
"""
