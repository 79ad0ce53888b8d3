"""Benchmarks of `fastfedrec.mechanisms.noise`."""
