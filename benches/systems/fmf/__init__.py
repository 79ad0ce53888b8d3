"""Benchmarks of `fastfedrec.systems.fmf`."""
