"""Make job specs from traces that frameworks write. The readers are ``nccl``, ``flight_recorder`` and ``chakra``.

``calls`` finds the iteration and its phases in the calls of all ranks, and makes the job spec."""
