"""Benchmarks of `fastfedrec.systems.fedrec`."""
