"""Benchmarks of `fastfedrec.systems.dmf`."""
