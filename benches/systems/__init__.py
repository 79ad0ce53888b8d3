"""Benchmarks of `fastfedrec.systems`."""
