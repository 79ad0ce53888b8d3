"""Benchmarks of `fastfedrec.mechanisms`."""
