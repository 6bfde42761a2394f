"""Job specs, and the traffic that follows from them: which address sends how many bytes to which.

In: plain data, or a ``JobSpec``. Out: virtual links, or ``InvalidInput`` with the path of each wrong field.

- ``spec``: the fields of a job spec, their types and limits.
- ``collectives``: virtual links from transfers and collectives. ``formulas`` has what each algorithm sends,
  ``library_profiles`` which algorithm a library takes.
- ``subflows``: how a virtual link is divided, and how switches tell its subflows apart.
- ``reports``: what a running job reports.
"""
