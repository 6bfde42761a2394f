"""Observability: the edge to Prometheus and to the log.

In: the published ``Status``. Out: ``/metrics`` over HTTP; log lines on stderr. This package measures nothing itself:
other modules publish counts and durations on the status board.

- ``families``: the list of all metrics. ``shapes``: their types. ``samples``: their values.
- ``exposition``: the text of all metrics. ``metrics``: the HTTP server.
- ``logs``: configures logging.
"""
