"""Benchmarks of `fastfedrec.compute`."""
