"""The saved state, which one process at a time writes. Changes are on disk before a request is acknowledged.

In: the present ``SavedState``; only its difference from the saved one is written. Out: the revision that contains the
difference, or the reason why it was not saved. After a restart: all records, or an error.

- ``store``: the ``Store`` interface (claim, load, commit). ``configured``: chooses the implementation.
- ``records``: the saved state as records, in one format for all stores. ``commit_queue``: the thread that writes.
- ``sqlite_store``, ``sqlite_database``: SQLite in the state directory. ``directory_claim``: who may use a directory.
- ``etcd_store``: etcd, with ``etcd_claim``, ``etcd_contents``, ``etcd_commits``, ``etcd_events``.
- ``etcd_client``, ``etcd_operations``: calls to etcd, with the messages of its API in ``etcd_v3``.
- ``members``, ``etcd_members``: the controllers that share a state in etcd. ``sign_of_life``: shows that one has ended.
- ``exported``: the text form in which a state is moved. ``lease_secret``: the file with the secret of lease tokens.
"""
