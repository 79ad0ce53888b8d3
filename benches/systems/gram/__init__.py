"""Benchmarks of `fastfedrec.systems.gram`."""
