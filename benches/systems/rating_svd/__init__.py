"""Benchmarks of `fastfedrec.systems.rating_svd`."""
