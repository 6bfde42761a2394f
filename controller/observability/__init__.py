"""The edge to Prometheus and to the log.

In: the published ``Status``. Out: ``/metrics`` over HTTP; log lines on stderr. Nothing here counts or times anything:
the module that measures a duration adds it to a frozen histogram, which is published on the status board.

- ``families``: the list of all metrics. ``shapes``: their types. ``samples``: their values, computed from the status.
- ``exposition``: the text of all metrics.
- ``metrics``: the HTTP server.
- ``logs``: the one place that configures logging.
"""
