"""``signalbox run``: a job is announced for as long as a command runs, with the hosts that its launcher says."""
