"""The saved state. It has one writer at a time, and changes are safe on disk before a request is acknowledged.

In: the present ``SavedState``; only its difference from the saved one is written. Out: the revision that contains the
difference, or the reason why it was not saved. After a restart: all records, or an error.

- ``store``: the ``Store`` interface (claim, load, commit) between the controller and its saved state.
- ``records``: the saved state as records, in one format for all stores.
- ``configured``: chooses the store: SQLite in the state directory, etcd, or none.
- ``commit_queue``: the thread that writes commits.
- ``sqlite_store``, ``sqlite_database``: the SQLite implementation.
- ``etcd_store``: the implementation in etcd, with ``etcd_claim``, ``etcd_contents``, ``etcd_commits``, ``etcd_events``.
- ``etcd_client``, ``etcd_operations``: calls to etcd, with the messages of its API in ``etcd_v3``.
- ``exported``: the text form in which a state is moved to another store. ``lease_secret``: the file with the secret of
  lease tokens.
- ``members``, ``etcd_members``: the controllers that share a state in etcd.
- ``sign_of_life``: shows other members that a member's process has ended, before its lease ends.
- ``directory_claim``: file locks that decide which controller may use a directory.
"""
