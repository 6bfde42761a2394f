"""The edge to Prometheus and to the log.

In: the published ``Status``. Out: ``/metrics`` over HTTP; log lines on stderr. Nothing here counts or times anything:
each owner of a duration adds it up in a frozen histogram, which is published like everything else.

- ``families``: every metric, and how it follows from the status. ``shapes``, ``samples``: what metrics are made of.
- ``exposition``: the text of all metrics.
- ``metrics``: the HTTP server.
- ``logs``: the one place that configures logging.
"""
