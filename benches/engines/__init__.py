"""Benchmarks of `fastfedrec.engines`."""
