"""Benchmarks of `fastfedrec.core`."""
