"""Live state of a controller and pictures of it as data; nothing here draws.

Messages of the API become one ``State`` and words for it, which ``web``, ``top``, ``report`` and the commands show.

- ``state``, ``following``: the state, assembled from watches, and the threads that keep it up to date
- ``picture``: the fabric as a picture
- ``jobs``, ``rows``, ``shown``: words for jobs, events with rows of tables, all other words"""
