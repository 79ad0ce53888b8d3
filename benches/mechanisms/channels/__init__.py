"""Benchmarks of `fastfedrec.mechanisms.channels`."""
