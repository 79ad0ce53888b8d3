"""Benchmarks of `fastfedrec.systems.sdcf`."""
