"""Make job specs from traces that frameworks write: ``nccl``, ``flight_recorder`` and ``chakra``, one per format.

``calls`` finds the iteration and its phases in the calls of all ranks, and makes the job spec."""
