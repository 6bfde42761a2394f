"""Analyses of the running network: causes of a job's slowdown, effects of failures, proofs of the routes in force.

An analysis can need many plans, so an ``Answerer`` runs it in a process of its own. ``messages`` has the requests and
results, which can be sent between processes. ``dispatch`` passes a request to ``job`` or ``failures``.
"""
