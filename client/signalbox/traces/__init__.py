"""Job specs from what frameworks write: ``nccl``, ``flight_recorder`` and ``chakra``, one module per format.

``calls`` finds the iteration and its phases in the calls of all ranks, ``specs`` makes the job spec.
"""
