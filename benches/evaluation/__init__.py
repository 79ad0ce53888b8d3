"""Benchmarks of `fastfedrec.evaluation`."""
