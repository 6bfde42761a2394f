"""Job specs and their traffic: the bytes that each address sends to each other address.

Plain data become a ``JobSpec``, which becomes virtual links. ``InvalidInput`` has the path of each wrong field.

- ``spec``: fields of a job spec, their types and limits
- ``collectives``: the virtual links that the transfers and collectives of a spec make
- ``formulas``: the transfers of each algorithm, and the algorithms that libraries use
- ``subflows``: division of a virtual link, and how switches distinguish its subflows
- ``reports``: reports of a running job
"""
