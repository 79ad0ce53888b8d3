"""Benchmarks of `fastfedrec.datasets`."""
