"""Benchmarks of `fastfedrec.mechanisms.frequencies`."""
