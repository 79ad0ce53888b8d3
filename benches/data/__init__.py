"""Benchmarks of `fastfedrec.data`."""
