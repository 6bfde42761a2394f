"""Analyses of the running network: why a job is slow, what failures would do, why no routes are better.

An analysis can need many plans, so an ``Answerer`` runs it in a process of its own.

In: a request of the API with the network as it is now (``requests``). Out: results that can be sent between processes
(``results``). ``analyse`` chooses between ``job`` and ``failures``.
"""
