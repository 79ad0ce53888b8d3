"""Benchmarks of `fastfedrec.systems.baselines`."""
