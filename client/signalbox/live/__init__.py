"""The state of a controller as people see it, kept up to date, and pictures of it as data. Nothing here draws.

In: messages of the API. Out: one ``State`` and words for it, which ``web``, ``top``, ``report`` and the commands show.

- ``state``, ``following``: the state, put together from watches, and the threads that keep it up to date.
- ``picture``, ``crossing``, ``colours``: the fabric as a picture, and which flows cross which links.
- ``jobs``, ``happened``, ``rows``, ``shown``: words of jobs and events, rows of tables, all other words.
"""
