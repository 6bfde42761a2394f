"""The exchange between the ranks of one program, and the announcement that follows, whatever library they use.

``exchange`` brings the recorded calls of all ranks to rank 0, ``marks`` finds whole iterations.
``announcement`` makes the fields of a job spec, ``own_address`` finds the address of a rank.
"""
