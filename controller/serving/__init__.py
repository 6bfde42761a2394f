"""The running process: wiring, threads, standby, checks before the start, the event log, garbage collection."""
