"""The saved state: one writer at a time, and commits that are safe on disk before a request is acknowledged.

In: two ``SavedState`` objects, of which only the difference is written. Out: the revision that holds it, or the reason
why nothing does; after a restart all records, or a refusal.

- ``store``: the ``Store`` interface (claim, load, commit), all that the controller knows of where the state is kept.
- ``records``: the saved state as records of one format, whatever keeps them.
- ``configured``: which store a controller has: SQLite in its state directory, or none.
- ``sqlite_store``, ``sqlite_database``: the SQLite implementation.
- ``directory_claim``: locks that decide which controller has a directory.
"""
