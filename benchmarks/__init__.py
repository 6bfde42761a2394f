"""Measurements, each a module with its command in docs/benchmarks.md; failures, moves and flow_cache need root."""
