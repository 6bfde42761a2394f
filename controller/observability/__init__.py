"""Observability: the edge to Prometheus and to the log.

In: the published ``Status``. Out: ``/metrics`` over HTTP; log lines on stderr. This package measures nothing itself:
counts and frozen histograms of durations come from the status board, where other modules publish them.

- ``families``: the list of all metrics. ``shapes``: their types. ``samples``: their values, computed from the status.
- ``exposition``: the text of all metrics.
- ``metrics``: the HTTP server.
- ``logs``: configures logging.
"""
