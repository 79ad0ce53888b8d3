"""Benchmarks of `fastfedrec.systems.subspace`."""
