"""Exchange data between the ranks of one program, and announce the job; independent of the communication library.

``exchange`` brings the recorded calls of all ranks to rank 0, ``marks`` finds whole iterations. ``announcement`` makes
the fields of a job spec."""
