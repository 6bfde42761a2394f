"""Analyses of the running network: causes of a job's slowdown, effects of failures, proofs of the routes in force.

An analysis can need many plans, so an ``Answerer`` runs it in a process of its own.

In: a request of the API with the present state of the network. Out: results that can be sent between processes; both
are in ``messages``. ``dispatch`` passes a request to ``job`` or ``failures``.
"""
